"""Growing the model in a file: what ``translation_layer_growth`` does at a stage boundary, on a checkpoint.

Training can go on from the new file as it would from the grown model of a running training: with a fresh optimizer and
a restarted learning rate.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from fairseq_compat import UserError, checkpoints
from fairseq_depthwise.growth.freezing import LastGrowth
from fairseq_depthwise.growth.layer_sources import layer_sources
from fairseq_depthwise.growth.parameter_sources import Growth, drawing_from
from fairseq_depthwise.growth.trained_model import block_size, build_like, read_trained_model
from fairseq_depthwise.optim.restart_schedule import add_restart

#: Where a checkpoint keeps the moving average of ``--store-ema``, and its float32 copy.
_AVERAGES = ("ema", "ema_fp32_params")


class GrownCheckpoint(NamedTuple):
    """Layers of the side and parameters of the model, before and after, and the updates behind the checkpoint."""

    depth: int
    layers: int
    parameters: tuple[int, int]
    updates: int


def grow_checkpoint(
    path: str,
    output: str,
    layers: int,
    *,
    strategy: str,
    side: str,
    init: str = "copy",
    frozen: str = "none",
    seed: int | None = None,
) -> GrownCheckpoint:
    """Write a checkpoint whose model has ``layers`` layers on one side; the file appears whole or not at all.

    ``frozen``: the ``--growth-freeze`` of the training from it. ``seed``: of layers that start anew; None is the one
    that the training so far was given.
    """
    trained = read_trained_model(path)
    if trained.remarks:
        raise UserError(
            f"{path} holds fairseq's own transformer, whose class cannot be grown; train sdt_transformer from it with "
            f"--growth-from {path}"
        )
    depth = trained.depth(side)
    sources = {side: layer_sources(depth, layers, strategy, block_size(trained.options, side), init)}
    state = checkpoints.load_checkpoint(path, mapped=True)
    if seed is None:
        seed = checkpoints.options_in(state, "common").get("seed", 1)
    with torch.device("meta"):
        shallow = build_like(trained)
    own, held = ({name: one.shape for name, one in values.items()} for values in (shallow.state_dict(), state["model"]))
    if own != held:  # what is missing would be as in a new model, and the rest left out
        raise UserError(f"{path} is damaged: {min(own.items() ^ held.items())[0]} in it is not that of its own options")
    checkpoints.require_one_value(shallow, state["model"])
    with drawing_from(seed + trained.updates):
        grown = build_like(trained, {f"{side}_layers": layers})
    growth = Growth(grown, trained.values, sources, init)
    last_growth = LastGrowth(tuple(growth.new), frozen)

    state["model"] = growth.grow(state["model"])
    extra = state["extra_state"] = dict(state.get("extra_state") or {})
    for average in _AVERAGES:
        if extra.get(average):
            checkpoints.require_one_value(shallow, extra[average])
            extra[average] = growth.grow(extra[average])
    extra["grown_from"] = f"{depth} {side} layers, {strategy}"
    _set_option(state, f"{side}_layers", layers)
    _restart(state, trained.updates)
    LastGrowth.before(state).freeze(shallow)
    last_growth.freeze(grown)
    trainable = (sum(one.requires_grad for one in model.parameters()) for model in (shallow, grown))
    _reset_optimizer(state, *trainable)
    state["task_state"] = {**(state.get("task_state") or {}), **last_growth.task_state()}
    checkpoints.save(state, output)
    before, after = (sum(parameter.numel() for parameter in model.parameters()) for model in (shallow, grown))
    return GrownCheckpoint(depth, layers, (before, after), trained.updates)


def _set_option(state: dict[str, Any], name: str, value: int) -> None:
    options = state["cfg"]["model"] if state.get("cfg") else state["args"]
    if isinstance(options, dict):
        options[name] = value
    else:
        setattr(options, name, value)


def _restart(state: dict[str, Any], updates: int) -> None:
    """Let the learning rate schedule restart here."""
    history = state.get("optimizer_history")
    if history:
        add_restart(history[-1].get("lr_scheduler_state") or {}, updates)


def _reset_optimizer(state: dict[str, Any], before: int, after: int) -> None:
    """Forget the optimizer's moments, and allocate ``after`` tensors where ``before`` of the model were trained.

    A training that goes on from the file finds an optimizer that has not taken a step, at its number of updates.
    """
    optimizer = state.get("last_optimizer_state") or {}
    groups = optimizer.get("param_groups") or []
    if len(groups) != 1:
        state["last_optimizer_state"] = None
        return
    count = len(groups[0]["params"])
    is_flat = count < before  # fp16 keeps all parameters in one vector
    numbers = list(range(count if is_flat else count + after - before))
    kept = {name: value for name, value in optimizer.items() if name != "master_weights"}
    state["last_optimizer_state"] = {**kept, "state": {}, "param_groups": [{**groups[0], "params": numbers}]}
