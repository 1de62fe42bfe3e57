"""The mean of several checkpoints' parameters, which fairseq's wheel has no command for."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairseq_compat import UserError, belonging, checkpoints
from fairseq_compat.finite import require_finite
from fairseq_depthwise.checkpoints.sizes import StateDict, depths_in, first_of_each_memory


def saved_checkpoints(folder: str) -> list[str]:
    """Return the checkpoints of a training folder, oldest first.

    Those saved at the end of an epoch (``checkpoint3.pt``) and those saved every so many updates
    (``checkpoint_3_1500.pt``) are one sequence in the order of training.
    """

    def position(name: str) -> tuple[int, float] | None:
        if match := re.fullmatch(r"checkpoint(\d+)\.pt", name):
            return int(match[1]), float("inf")
        if match := re.fullmatch(r"checkpoint_(\d+)_(\d+)\.pt", name):
            return int(match[1]), int(match[2])
        return None

    placed = sorted((place, name) for name in os.listdir(folder) if (place := position(name)) is not None)
    return [os.path.join(folder, name) for _, name in placed]


def last_checkpoints(folder: str, count: int) -> list[str]:
    """Return the ``count`` newest of :func:`saved_checkpoints`, oldest first.

    Raises:
        UserError: there are fewer.
    """
    saved = saved_checkpoints(folder)
    what = "checkpoints named checkpointEPOCH.pt or checkpoint_EPOCH_UPDATES.pt"
    _require(len(saved), count, folder, what, "--last")
    return saved[-count:]


def best_checkpoints(folder: str, count: int) -> list[str]:
    """Return the ``count`` best checkpoints that ``--keep-best-checkpoints`` left in a folder, best first.

    Raises:
        UserError: there are fewer.
    """
    pattern = re.compile(r"checkpoint\.best_(.+)_(-?\d+\.?\d*)\.pt")
    scored = sorted((float(match[2]), name) for name in os.listdir(folder) if (match := pattern.fullmatch(name)))
    _require(len(scored), count, folder, "checkpoints kept by --keep-best-checkpoints of fairseq-train", "--best")
    newest_first = checkpoints.load_checkpoint(os.path.join(folder, scored[0][1]))
    if _larger_is_better(newest_first):
        scored.reverse()
    return [os.path.join(folder, name) for _, name in scored[:count]]


class RunningAverage:
    """The element-wise mean of state dicts of one model; they are added one after the other, so one is in memory.

    Floating-point tensors are summed in float64, and the mean has each tensor's own type; all others (counters) are
    those of the last state. Tensors that are one in memory in every state (tied embeddings, shared gates) are one in
    the result.
    """

    def __init__(self) -> None:
        self.count = 0
        self._first_name = ""
        self._sums: dict[str, Tensor] = {}
        self._last: dict[str, Tensor] = {}
        self._one_in_memory: dict[str, str] = {}

    def add(self, state: StateDict, name: str) -> None:
        """Add a state dict; ``name`` is what an error calls it.

        Raises:
            UserError: a tensor is missing, has another shape than before or values that are not numbers.
        """
        require_finite(state.items(), name)
        same = first_of_each_memory(state)
        if self.count == 0:
            self._first_name = name
            self._one_in_memory = same
        else:
            self._require_same_tensors(state, name)
            # Keep only what is one in memory in every state.
            groups: dict[tuple[str, str], str] = {}
            self._one_in_memory = {
                key: groups.setdefault((first, same[key]), key) for key, first in self._one_in_memory.items()
            }
        for key, tensor in state.items():
            if tensor.is_floating_point():
                wide = tensor.to(torch.float64)
                self._sums[key] = wide if self.count == 0 else self._sums[key] + wide
        # Only types and the few tensors that are not averaged are needed later.
        self._last = {
            key: tensor.new_empty(0) if tensor.is_floating_point() else tensor for key, tensor in state.items()
        }
        self.count += 1

    def result(self) -> dict[str, Tensor]:
        """Return the mean of what was added."""
        mean: dict[str, Tensor] = {}
        for key, last in self._last.items():
            first = self._one_in_memory[key]
            if first in mean:
                mean[key] = mean[first]
            elif last.is_floating_point():
                mean[key] = (self._sums[key] / self.count).to(last.dtype)
            else:
                mean[key] = last
        return mean

    def _require_same_tensors(self, state: StateDict, name: str) -> None:
        for key in self._last:
            if key not in state:
                raise UserError(f"{name} has no tensor {key}, which {self._first_name} has; average one model only")
            expected = self._sums[key].shape if key in self._sums else self._last[key].shape
            if state[key].shape != expected:
                raise UserError(
                    f"tensor {key} has shape {_shape(state[key].shape)} in {name} and {_shape(expected)} in "
                    f"{self._first_name}; average checkpoints of one model only"
                )
        for key in state:
            if key not in self._last:
                raise UserError(f"{name} has a tensor {key}, which {self._first_name} lacks; average one model only")


def require_one_depth(paths: Sequence[str], *, newest: bool = False) -> None:
    """Raise UserError where a model has grown between two checkpoints; their tensors are not read.

    Args:
        paths: checkpoints.
        newest: they are the newest of a training, oldest first, chosen with ``--last``; the error then says how many of
            them are of one depth.
    """
    # One after the other: older files have to be loaded as a whole.
    outlines = [_outline(checkpoints.load_checkpoint(path, mapped=True)["model"]) for path in paths]
    last = outlines[-1]
    for number in reversed(range(len(paths) - 1)):
        other, alike = outlines[number], len(paths) - 1 - number
        if side := _grown_side(other, last):
            hint = f"; --last {alike} are of one depth" if newest and alike > 1 else ""
            raise UserError(
                f"{paths[-1]} has {last.depths[side]} {side} layers and {paths[number]} {other.depths[side]}: the "
                f"model grew between them; average checkpoints of one depth{hint}"
            )


def write_average(
    paths: Sequence[str], output: str, *, newest: bool = False, progress: Callable[[str], None] = lambda path: None
) -> None:
    """Average checkpoints of one training run, or of several, into a checkpoint for generation.

    The output is the last of ``paths`` with the mean parameters and without the optimizer's state, which belongs to
    no mean; ``extra_state`` tells which files went in.

    Args:
        paths: checkpoints, read one after the other.
        output: where to write; appears whole or not at all.
        newest: as in :func:`require_one_depth`.
        progress: called with each path before it is read.

    Raises:
        UserError: a file cannot be read, or the models differ.
    """
    require_one_depth(paths, newest=newest)
    averager = RunningAverage()
    state: dict[str, Any] = {}
    recorded: dict[str, Any] = {}
    for path in paths:
        progress(path)
        state = checkpoints.load_checkpoint(path)
        belonging.require_same(path, found := belonging.recorded_in(state), recorded, paths[0])
        recorded = {**found, **recorded}
        averager.add(state["model"], path)
    state["model"] = averager.result()
    state["last_optimizer_state"] = None
    extra = state["extra_state"] = dict(state.get("extra_state") or {})
    for key in ("ema", "ema_fp32_params"):
        extra.pop(key, None)
    if recorded:
        extra[belonging.ENTRY] = recorded
    extra["averaged_from"] = [os.path.basename(path) for path in paths]
    checkpoints.save(state, output)


class _Outline(NamedTuple):
    """A model's depths, and the names of its tensors without the numbers in them: those of a model that grows stay."""

    depths: dict[str, int]
    kinds: frozenset[str]


def _outline(names: Iterable[str]) -> _Outline:
    return _Outline(depths_in(names), frozenset(re.sub(r"\.\d+(?=\.|$)", ".N", name) for name in names))


def _grown_side(one: _Outline, other: _Outline) -> str | None:
    """Return the side on which one model can be the other after growth; None if they differ in nothing or in more."""
    # A second layer may bring what a first one lacks: the depth-wise model's has no input norm.
    if not (one.kinds <= other.kinds or one.kinds >= other.kinds) or one.depths.keys() != other.depths.keys():
        return None
    return next((side for side, depth in one.depths.items() if depth != other.depths[side]), None)


def _larger_is_better(state: Mapping[str, Any]) -> bool:
    return bool(checkpoints.options_in(state, "checkpoint").get("maximize_best_checkpoint_metric"))


def _require(present: int, wanted: int, folder: str, what: str, option: str) -> None:
    if present < wanted:
        raise UserError(f"{option} {wanted}: {folder} holds {present} {what}; give at most that many")


def _shape(shape: torch.Size) -> str:
    return "x".join(str(size) for size in shape) or "()"
