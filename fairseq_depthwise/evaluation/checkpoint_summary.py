"""The summary of a checkpoint: its model, how far it was trained and how, what else is in it.

Nothing is computed from the parameters, so of a memory-mapped checkpoint no tensor is read.
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
from fairseq_depthwise.optim.restart_schedule import restarts_in


def summarize(state: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the summary, with None for what the checkpoint does not record or its model does not have.

    ``state`` is what :func:`fairseq_compat.checkpoints.load_checkpoint` returns, called ``name`` in errors.
    ``ties_known`` is False where parameters that are tied in the model may have been counted several times;
    ``unused_copies`` are parameters that stock fairseq saves beside these and never reads; ``stage``, from 1, is the
    one of a growing training that has the model's depth.
    """
    options = checkpoints.options_in(state)
    if not options:
        raise UserError(f"{name} is not a fairseq checkpoint: it has no options of a model")
    values = state["model"]
    extra = state.get("extra_state") or {}
    counts = count_parameters(values, options)  # before the registry of families is read, since it fills it
    depths = depths_in(values)
    return {
        **_architecture(options),
        **_sizes(depths, options),
        **counts._asdict(),
        "dtype": _types_of(values.values()),
        **_progress(state, extra),
        **_schedule(state),
        **_stage(state, depths, options),
        "optimizer_state": _has_optimizer_state(state),
        "moving_average": bool(extra.get("ema")),
        **_scores(state, extra),
        "averaged_from": tuple(extra.get("averaged_from") or ()),
        "grown_from": extra.get("grown_from"),
        "versions": extra.get("versions"),
    }


def _architecture(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the architecture and its family, that is the name of the model class."""
    architecture = options.get("_name") or options.get("arch")
    family = ARCH_MODEL_NAME_REGISTRY.get(architecture)
    if family is None and architecture in MODEL_REGISTRY:
        family = architecture
    return {"architecture": architecture, "family": family}


def _sizes(depths: Mapping[str, int], options: Mapping[str, Any]) -> dict[str, Any]:
    sizes: dict[str, Any] = {}
    for side in SIDES:
        # A hydra file has a group of options for each side; fairseq adds the flat ones' defaults, which mean nothing
        # then.
        grouped = options[side] if isinstance(options.get(side), Mapping) else {}
        sizes[f"{side}_layers"] = depths.get(side)
        for name in ("embed_dim", "attention_heads"):
            size = grouped.get(name, options.get(f"{side}_{name}"))
            # Some architectures of fairseq have texts here.
            sizes[f"{side}_{name}"] = size if side in depths and isinstance(size, int) else None
    return sizes


def _types_of(values: Iterable[Any]) -> str:
    names = {str(value.dtype).removeprefix("torch.") for value in values if value.is_floating_point()}
    return ", ".join(sorted(names))


def _progress(state: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return how many updates and epochs the model was trained for."""
    iterator = extra.get("train_iterator")
    return {
        "updates": _history(state).get("num_updates"),
        "epoch": last_epoch(state) if iterator else None,
        "mid_epoch": bool(iterator and iterator.get("iterations_in_epoch")),
    }


def _schedule(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the learning rate's schedule, its peak, and the updates after which it restarted."""
    scheduler = checkpoints.options_in(state, "lr_scheduler")
    optimization = checkpoints.options_in(state, "optimization")
    # The triangular schedule begins at --lr and names its peak apart. fairseq has one rate for each epoch.
    rates = scheduler.get("max_lr") or scheduler.get("lr") or optimization.get("lr")
    return {
        "lr_scheduler": scheduler.get("_name") or scheduler.get("lr_scheduler"),
        "peak_lr": max(rates) if isinstance(rates, list) else rates,
        "restarts": restarts_in(_history(state).get("lr_scheduler_state") or {}),
    }


def _history(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return fairseq's entry of the last optimizer."""
    history: Mapping[str, Any] = (state.get("optimizer_history") or [{}])[-1]
    return history


def _stage(state: Mapping[str, Any], depths: Mapping[str, int], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stages of a growing training, and which of them the model's depth belongs to."""
    text, side, strategy = stages_in(state) or (None, None, None)
    stage, stages = None, None
    if text is not None and strategy is not None:
        # Decoders have no blocks.
        block_size = 0 if side == "decoder" else options.get("encoder_block_size") or 0
        plan = parse_stages(text, strategy=strategy, block_size=block_size)
        stages = len(plan.stages)
        place = plan.stage_with(depths.get("decoder" if side == "decoder" else "encoder", 0))
        stage = None if place is None else place + 1
    return {
        "stage": stage,
        "stages": stages,
        "growth_stages": text,
        "growth_side": side,
        "growth_strategy": strategy,
    }


def _has_optimizer_state(state: Mapping[str, Any]) -> bool:
    optimizer = state.get("last_optimizer_state") or {}
    return bool(optimizer.get("state", optimizer))  # `grow` writes one whose state is empty


def _scores(state: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the last and the best score on the validation set, and their metric."""
    last, best = extra.get("val_loss"), extra.get("best")
    metric = checkpoints.options_in(state, "checkpoint").get("best_checkpoint_metric", "loss")
    return {
        "metric": None if last is None and best is None else metric,
        "val_score": None if last is None else float(last),
        "best_score": None if best is None else float(best),
    }
