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
    values = state["model"]
    extra = state.get("extra_state") or {}
    architecture = options.get("_name") or options.get("arch")
    depths = depths_in(values)
    counted = count_parameters(values, options)
    iterator = extra.get("train_iterator")
    floating = (value.dtype for value in values.values() if value.is_floating_point())
    return {
        "architecture": architecture,
        "family": ARCH_MODEL_NAME_REGISTRY.get(architecture, architecture if architecture in MODEL_REGISTRY else None),
        **_sizes("encoder", depths, options),
        **_sizes("decoder", depths, options),
        **counted._asdict(),
        "dtype": ", ".join(sorted({str(dtype).removeprefix("torch.") for dtype in floating})),
        "updates": checkpoints.updates_in(state) if state.get("optimizer_history") else None,
        "epoch": last_epoch(state) if iterator else None,
        "mid_epoch": bool(iterator and iterator.get("iterations_in_epoch")),
        **_schedule(state),
        **_stage(state, depths, options),
        "optimizer_state": _has_moments(state.get("last_optimizer_state")),
        "moving_average": bool(extra.get("ema")),
        **_validation(state, extra),
        "averaged_from": tuple(extra.get("averaged_from") or ()),
        "grown_from": extra.get("grown_from"),
        "versions": extra.get("versions"),
    }


def _sizes(side: str, depths: Mapping[str, int], options: Mapping[str, Any]) -> dict[str, Any]:
    if side not in depths:
        return dict.fromkeys((f"{side}_layers", f"{side}_embed_dim", f"{side}_attention_heads"))
    # A hydra file has a group of options for each side; fairseq adds the others' defaults, which mean nothing then.
    grouped = options[side] if isinstance(options.get(side), Mapping) else {}
    sizes = {name: grouped.get(name, options.get(f"{side}_{name}")) for name in ("embed_dim", "attention_heads")}
    # Some architectures of fairseq have texts here.
    numbers = {f"{side}_{name}": size if isinstance(size, int) else None for name, size in sizes.items()}
    return {f"{side}_layers": depths[side], **numbers}


def _schedule(state: Mapping[str, Any]) -> dict[str, Any]:
    options = checkpoints.options_in(state, "lr_scheduler")
    # A rate for each epoch; the triangular schedule begins at --lr and names its peak apart.
    rates = options.get("max_lr") or options.get("lr") or checkpoints.options_in(state, "optimization").get("lr")
    history = (state.get("optimizer_history") or [{}])[-1].get("lr_scheduler_state") or {}
    return {
        "lr_scheduler": options.get("_name") or options.get("lr_scheduler"),
        "peak_lr": max(filter(_is_number, rates if isinstance(rates, list) else [rates]), default=None),
        "restarts": tuple(history.get("restarts") or ()),
    }


def _stage(state: Mapping[str, Any], depths: Mapping[str, int], options: Mapping[str, Any]) -> dict[str, Any]:
    given = stages_in(state)
    if given is None:
        return dict.fromkeys(("stage", "stages", "growth_stages", "growth_side", "growth_strategy"))
    text, side, strategy = given
    grows = "decoder" if side == "decoder" else "encoder"
    block_size = options.get("encoder_block_size") if grows == "encoder" else 0
    block_size = block_size if isinstance(block_size, int) else 0
    plan = parse_stages(text, strategy=strategy, block_size=block_size)
    stage = plan.stage_with(depths.get(grows, 0))
    return {
        "stage": None if stage is None else stage + 1,
        "stages": len(plan.stages),
        "growth_stages": text,
        "growth_side": side,
        "growth_strategy": strategy,
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


def _has_moments(optimizer: Any) -> bool:
    """Return whether there are moments: ``grow`` leaves an optimizer without a state, ``average`` none."""
    return bool(optimizer.get("state", optimizer)) if isinstance(optimizer, Mapping) else optimizer is not None


def _validation(state: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    scores = {name: extra.get(key) for name, key in (("val_score", "val_loss"), ("best_score", "best"))}
    if all(score is None for score in scores.values()):
        return {"metric": None, **scores}
    metric = checkpoints.options_in(state, "checkpoint").get("best_checkpoint_metric", "loss")
    return {"metric": metric, **{name: None if score is None else float(score) for name, score in scores.items()}}
