"""What a checkpoint says of itself: its model, how far it was trained and how, what else is in it.

Nothing is computed from the parameters, so with a checkpoint whose tensors stay in the file none of them is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairseq.models import ARCH_MODEL_NAME_REGISTRY, MODEL_REGISTRY

from fairseq_compat import UserError, checkpoints
from fairseq_depthwise.checkpoints.sizes import count_parameters, depths_in
from fairseq_depthwise.growth.resuming import last_epoch, stages_in
from fairseq_depthwise.growth.stages import parse_stages
from fairseq_depthwise.modules.stack import SIDES
from fairseq_depthwise.optim.restart_schedule import restarts_in


def summarize(state: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a checkpoint in words and numbers: None for what it does not say, or for what its model has not got.

    ``state`` is what :func:`fairseq_compat.checkpoints.load_checkpoint` returns, called ``name`` in errors.
    ``ties_known`` is False where parameters that are tied in the model may have been counted several times;
    ``unused_copies`` are parameters that stock fairseq saves beside these and never reads; ``stage``, from 1, is the
    one of a growing training that has the model's depth.
    """
    options = checkpoints.options_in(state)
    if not options:
        raise UserError(f"{name} is not a fairseq checkpoint: it has no options of a model")
    values, extra = state["model"], state.get("extra_state") or {}
    architecture = options.get("_name") or options.get("arch")
    depths, iterator = depths_in(values), extra.get("train_iterator")
    scheduler, history = checkpoints.options_in(state, "lr_scheduler"), (state.get("optimizer_history") or [{}])[-1]
    # A rate for each epoch; the triangular schedule begins at --lr and names its peak apart.
    rates = scheduler.get("max_lr") or scheduler.get("lr") or checkpoints.options_in(state, "optimization").get("lr")
    optimizer = state.get("last_optimizer_state") or {}  # of `grow`, one without a state
    counts = count_parameters(values, options)  # first, since it registers the families
    floating = {value.dtype for value in values.values() if value.is_floating_point()}
    scores = {name: extra.get(key) for name, key in (("val_score", "val_loss"), ("best_score", "best"))}
    metric = checkpoints.options_in(state, "checkpoint").get("best_checkpoint_metric", "loss")
    return {
        "architecture": architecture,
        "family": ARCH_MODEL_NAME_REGISTRY.get(architecture, architecture if architecture in MODEL_REGISTRY else None),
        **_sizes(depths, options),
        **counts._asdict(),
        "dtype": ", ".join(sorted({str(dtype).removeprefix("torch.") for dtype in floating})),
        "updates": history.get("num_updates"),
        "epoch": last_epoch(state) if iterator else None,
        "mid_epoch": bool(iterator and iterator.get("iterations_in_epoch")),
        "lr_scheduler": scheduler.get("_name") or scheduler.get("lr_scheduler"),
        "peak_lr": max(rates) if isinstance(rates, list) else rates,
        "restarts": restarts_in(history.get("lr_scheduler_state") or {}),
        **_stage(state, depths, options),
        "optimizer_state": bool(optimizer.get("state", optimizer)),
        "moving_average": bool(extra.get("ema")),
        "metric": None if set(scores.values()) == {None} else metric,
        **{name: None if score is None else float(score) for name, score in scores.items()},
        "averaged_from": tuple(extra.get("averaged_from") or ()),
        "grown_from": extra.get("grown_from"),
        "versions": extra.get("versions"),
    }


def _sizes(depths: Mapping[str, int], options: Mapping[str, Any]) -> dict[str, Any]:
    sizes: dict[str, Any] = {}
    for side in SIDES:
        # A hydra file has a group of options for each side; fairseq adds the others' defaults, which mean nothing then.
        grouped = options[side] if isinstance(options.get(side), Mapping) else {}
        sizes[f"{side}_layers"] = depths.get(side)
        for name in ("embed_dim", "attention_heads"):
            size = grouped.get(name, options.get(f"{side}_{name}"))
            # Some architectures of fairseq have texts here.
            sizes[f"{side}_{name}"] = size if side in depths and isinstance(size, int) else None
    return sizes


def _stage(state: Mapping[str, Any], depths: Mapping[str, int], options: Mapping[str, Any]) -> dict[str, Any]:
    text, side, strategy = stages_in(state) or (None, None, None)
    plan, stage = None, None
    if text is not None and strategy is not None:
        block_size = 0 if side == "decoder" else options.get("encoder_block_size") or 0
        plan = parse_stages(text, strategy=strategy, block_size=block_size)
        stage = plan.stage_with(depths.get("decoder" if side == "decoder" else "encoder", 0))
    numbers = {"stage": None if stage is None else stage + 1, "stages": len(plan.stages) if plan else None}
    return numbers | {"growth_stages": text, "growth_side": side, "growth_strategy": strategy}
