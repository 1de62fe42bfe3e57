"""Growing the model in a file: what ``translation_layer_growth`` does at a stage boundary, on a checkpoint.

The tensors stay in the file that is read until they are written to the new one; only the copied layers are in memory.
Training can go on from the new file as it would from the grown model of a running training: with a fresh optimizer and
a restarted learning rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from fairseq_compat import UserError, checkpoints
from fairseq_compat.files import atomic_write
from fairseq_depthwise.growth.freezing import LastGrowth
from fairseq_depthwise.growth.grown_model import WithoutRandomValues, building
from fairseq_depthwise.growth.layer_sources import layer_sources
from fairseq_depthwise.growth.parameter_sources import Growth
from fairseq_depthwise.growth.trained_model import build_like, read_trained_model

#: Where a checkpoint keeps the moving average of ``--store-ema``, and its float32 copy.
_AVERAGES = ("ema", "ema_fp32_params")


@dataclass(frozen=True)
class GrownCheckpoint:
    """What was done.

    Attributes:
        depth: layers of the side before.
        layers: layers of the side after.
        parameters: of the whole model before and after, tied ones counted once.
        updates: updates behind the checkpoint, where the learning rate restarts.
    """

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
    """Write a checkpoint whose model has ``layers`` layers on one side.

    Args:
        path: checkpoint of one of our families.
        output: where to write; appears whole, after it was read back and checked, or not at all.
        layers: new depth.
        strategy: which layers are copied.
        side: "encoder" or "decoder".
        init: how new layers start, one of ``layer_sources.INITS``.
        frozen: what ``--growth-freeze`` of the training from it will say, one of ``freezing.FREEZES``.
        seed: of the values of layers that start anew; None is the one that the training so far was given.

    Raises:
        UserError: the file cannot be read or grown to that depth, or its copy on the disk is damaged.
    """
    trained = read_trained_model(path)
    if trained.remarks:
        raise UserError(
            f"{path} holds fairseq's own transformer, whose class cannot be grown; train sdt_transformer from it with "
            f"--growth-from {path}"
        )
    depth = trained.depth(side)
    block_size = (getattr(trained.options, "encoder_block_size", 0) or 0) if side == "encoder" else 0
    try:
        sources = {side: layer_sources(depth, layers, strategy, block_size, init)}
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    state = checkpoints.load_checkpoint(path, mapped=True)
    if seed is None:
        seed = checkpoints.options_in(state, "common").get("seed", 1)
    with WithoutRandomValues():
        shallow = build_like(trained)
    extra = dict(state.get("extra_state") or {})
    averages = {name: extra[name] for name in _AVERAGES if extra.get(name)}
    for name, values in {"model": state["model"], **averages}.items():
        _require_values(shallow, values, f"{path}: its entry {name}")
    with building(sources, seed + trained.updates):
        grown = build_like(trained, {f"{side}_layers": layers})
    growth = Growth(grown, trained.values, sources, init)
    last_growth = LastGrowth(tuple(growth.new), frozen)

    state["model"] = growth.grow(state["model"])
    state["extra_state"] = extra
    for average, values in averages.items():
        extra[average] = growth.grow(values)
    extra["grown_from"] = f"{depth} {side} layers, {strategy}"
    _set_option(state, f"{side}_layers", layers)
    _restart(state, trained.updates)
    LastGrowth.before(state).freeze(shallow)
    last_growth.freeze(grown)
    _reset_optimizer(state, *(_trainable(model) for model in (shallow, grown)))
    state["task_state"] = {**(state.get("task_state") or {}), **last_growth.task_state()}

    with atomic_write(output) as file:
        checkpoints.save_to(state, file)
        file.flush()
        _read_back(file.name, output, grown)
    counts = tuple(sum(parameter.numel() for parameter in model.parameters()) for model in (shallow, grown))
    return GrownCheckpoint(depth, layers, (counts[0], counts[1]), trained.updates)


def _require_values(model: nn.Module, values: Mapping[str, Tensor], what: str) -> None:
    """Raise :class:`UserError` unless there is a value for each of a model's parameters."""
    for name, built in model.state_dict().items():
        if name not in values or values[name].shape != built.shape:
            found = f"of shape {tuple(values[name].shape)}" if name in values else "missing"
            raise UserError(
                f"{what} does not fit the checkpoint's options: {name} is {found}; it must have the shape "
                f"{tuple(built.shape)}"
            )


def _trainable(model: nn.Module) -> int:
    return sum(parameter.requires_grad for parameter in model.parameters())


def _set_option(state: dict[str, Any], name: str, value: int) -> None:
    options = state["cfg"]["model"] if state.get("cfg") else state["args"]
    if isinstance(options, dict):
        options[name] = value
    else:
        setattr(options, name, value)


def _restart(state: dict[str, Any], updates: int) -> None:
    """Let the schedule restart here; those that know no restarts read nothing of it."""
    history = state.get("optimizer_history")
    if history:
        schedule = history[-1].get("lr_scheduler_state") or {}
        schedule["restarts"] = sorted({*(schedule.get("restarts") or ()), updates})


def _reset_optimizer(state: dict[str, Any], before: int, after: int) -> None:
    """Forget the optimizer's moments, and allocate ``after`` tensors where ``before`` of the model were trained.

    A training that goes on from the file finds an optimizer that has not taken a step, at its number of updates.
    """
    optimizer = state.get("last_optimizer_state")
    groups = optimizer.get("param_groups") or [] if isinstance(optimizer, dict) else []
    if not isinstance(optimizer, dict) or len(groups) != 1:
        state["last_optimizer_state"] = None
        return
    count = len(groups[0]["params"])
    is_flat = count < before  # fp16 keeps all parameters in one vector
    numbers = list(range(count if is_flat else count + after - before))
    kept = {name: value for name, value in optimizer.items() if name != "master_weights"}
    state["last_optimizer_state"] = {**kept, "state": {}, "param_groups": [{**groups[0], "params": numbers}]}


def _read_back(path: str, output: str, grown: nn.Module) -> None:
    """Raise :class:`UserError` unless the file at ``path`` is whole and its model is the grown one.

    Loading compares the checksums that were computed while the tensors were written, so they are not all in memory a
    second time.
    """
    expected = {name: tensor.shape for name, tensor in grown.state_dict().items()}
    try:
        written = checkpoints.load_checkpoint(path, mapped=True)["model"]
    except UserError:
        written = {}
    if {name: tensor.shape for name, tensor in written.items()} != expected:
        raise UserError(f"cannot write {output}: what was read back differs from what was written; check the disk")
