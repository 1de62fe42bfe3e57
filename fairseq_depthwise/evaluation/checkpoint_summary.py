"""The summary of a checkpoint: its model, its training, and its other contents.

Nothing is computed from the values of parameters, so no tensor of a memory-mapped checkpoint is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fairseq.models import ARCH_MODEL_NAME_REGISTRY, MODEL_REGISTRY

from fairseq_compat import UserError, checkpoints
from fairseq_depthwise.checkpoints.sizes import count_parameters, depths_in
from fairseq_depthwise.growth.resuming import last_epoch, stages_in
from fairseq_depthwise.growth.stages import parse_stages
from fairseq_depthwise.modules.stack import SIDES
from fairseq_depthwise.optim.restarts import restarts_in


def summarize(state: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the summary, with None for values that the checkpoint does not record or its model does not have.

    Some of its keys:

    - ``ties_known``: False if parameters that are tied in the model may have been counted several times
    - ``unused_copies``: parameters that stock fairseq saves in addition and never reads
    - ``stage``: the stage of a growing training that has the model's depth, from 1

    Args:
        state: the checkpoint, as :func:`fairseq_compat.checkpoints.load_checkpoint` returns it.
        name: its name in errors.

    Raises:
        UserError: the file is not a fairseq checkpoint.
    """
    options = checkpoints.options_in(state)
    if not options:
        raise UserError(f"{name} is not a fairseq checkpoint: it has no options of a model")
    values = state["model"]
    extra = state.get("extra_state") or {}
    counts = count_parameters(values, options)  # before the registry of families is read, since it fills it
    depths = depths_in(values)
    return {
        **_read_architecture(options),
        **_read_sizes(depths, options),
        **counts._asdict(),
        "dtype": _list_dtypes(values.values()),
        **_read_progress(state, extra),
        **_read_schedule(state),
        **_read_stage(state, depths, options),
        "optimizer_state": _has_optimizer_state(state),
        # From --store-ema.
        "moving_average": bool(extra.get("ema")),
        **_read_scores(state, extra),
        "averaged_from": tuple(extra.get("averaged_from") or ()),
        "grown_from": extra.get("grown_from"),
        "versions": extra.get("versions"),
    }


def _read_architecture(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the architecture and its family, which is the registered name of the model class."""
    architecture = options.get("_name") or options.get("arch")
    family = ARCH_MODEL_NAME_REGISTRY.get(architecture)
    if family is None and architecture in MODEL_REGISTRY:
        family = architecture
    return {"architecture": architecture, "family": family}


def _read_sizes(depths: Mapping[str, int], options: Mapping[str, Any]) -> dict[str, Any]:
    sizes: dict[str, Any] = {}
    for side in SIDES:
        # A hydra file has a group of options for each side; the flat options are then only fairseq's defaults.
        grouped = options[side] if isinstance(options.get(side), Mapping) else {}
        sizes[f"{side}_layers"] = depths.get(side)
        for name in ("embed_dim", "attention_heads"):
            size = grouped.get(name, options.get(f"{side}_{name}"))
            # Some architectures of fairseq have strings here.
            sizes[f"{side}_{name}"] = size if side in depths and isinstance(size, int) else None
    return sizes


def _list_dtypes(values: Iterable[Any]) -> str:
    names = {str(value.dtype).removeprefix("torch.") for value in values if value.is_floating_point()}
    return ", ".join(sorted(names))


def _read_progress(state: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of updates and epochs that the model was trained for."""
    iterator = extra.get("train_iterator")
    return {
        "updates": _read_history(state).get("num_updates"),
        "epoch": last_epoch(state) if iterator else None,
        "mid_epoch": bool(iterator and iterator.get("iterations_in_epoch")),
    }


def _read_schedule(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the learning rate's schedule, its peak, and the updates after which it restarted."""
    scheduler = checkpoints.options_in(state, "lr_scheduler")
    optimization = checkpoints.options_in(state, "optimization")
    # The triangular schedule begins at --lr and has its own option for the peak. --lr is a list of one rate per epoch.
    rates = scheduler.get("max_lr") or scheduler.get("lr") or optimization.get("lr")
    return {
        "lr_scheduler": scheduler.get("_name") or scheduler.get("lr_scheduler"),
        "peak_lr": max(rates) if isinstance(rates, list) else rates,
        "restarts": restarts_in(_read_history(state).get("lr_scheduler_state") or {}),
    }


def _read_history(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return fairseq's history entry of the last optimizer."""
    history: Mapping[str, Any] = (state.get("optimizer_history") or [{}])[-1]
    return history


def _read_stage(state: Mapping[str, Any], depths: Mapping[str, int], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stages of a growing training, and the stage that has the model's depth."""
    text, side, strategy = stages_in(state) or (None, None, None)
    stage, stages = None, None
    if text is not None and strategy is not None:
        # Decoders have no blocks.
        block_size = 0 if side == "decoder" else options.get("encoder_block_size") or 0
        plan = parse_stages(text, strategy=strategy, block_size=block_size)
        stages = len(plan.stages)
        depth = depths.get("decoder" if side == "decoder" else "encoder", 0)
        index = plan.stage_with(depth)
        stage = None if index is None else index + 1
    return {
        "stage": stage,
        "stages": stages,
        "growth_stages": text,
        "growth_side": side,
        "growth_strategy": strategy,
    }


def _has_optimizer_state(state: Mapping[str, Any]) -> bool:
    optimizer = state.get("last_optimizer_state") or {}
    return bool(optimizer.get("state", optimizer))  # `grow` writes an empty one


def _read_scores(state: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the last and the best score on the validation set, and their metric."""
    last, best = extra.get("val_loss"), extra.get("best")
    metric = checkpoints.options_in(state, "checkpoint").get("best_checkpoint_metric", "loss")
    return {
        "metric": None if last is None and best is None else metric,
        "val_score": None if last is None else float(last),
        "best_score": None if best is None else float(best),
    }
