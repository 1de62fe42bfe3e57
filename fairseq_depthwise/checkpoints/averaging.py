"""The mean of several checkpoints' parameters, which fairseq's wheel has no command for."""

from __future__ import annotations

import os
import re
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fairseq_compat import UserError, checkpoints, provenance
from fairseq_compat.checkpoints import require_finite
from fairseq_compat.provenance import file_digest
from fairseq_depthwise.checkpoints.sizes import StateDict, depths_in, first_of_each_memory


def saved_checkpoints(folder: str) -> list[str]:
    """Return the checkpoints of a training folder, oldest first.

    Those of epochs (``checkpoint3.pt``) and of updates (``checkpoint_3_1500.pt``) are one sequence. Where an epoch
    ended with an update that was saved too, only the former is in it.
    """
    pattern = re.compile(r"checkpoint(?:(\d+)|_(\d+)_(\d+))\.pt")
    matches = [match for name in os.listdir(folder) if (match := pattern.fullmatch(name))]
    matches.sort(key=lambda match: (int(match[1] or match[2]), float(match[3] or "inf"), match[0]))
    sequence: list[re.Match[str]] = []
    for match in matches:
        before = sequence[-1] if sequence else None
        if match[1] and before is not None and before[2] == match[1]:
            end = checkpoints.updates_in(checkpoints.load_checkpoint(os.path.join(folder, match[0]), mapped=True))
            if end == int(before[3]):
                sequence.pop()
        sequence.append(match)
    return [os.path.join(folder, match[0]) for match in sequence]


def last_checkpoints(folder: str, count: int) -> list[str]:
    """Return the ``count`` newest of :func:`saved_checkpoints`, oldest first."""
    saved = saved_checkpoints(folder)
    _require(len(saved), count, folder, "checkpoints named checkpointEPOCH.pt or checkpoint_EPOCH_UPDATES.pt", "--last")
    return saved[-count:]


def best_checkpoints(folder: str, count: int, metric: str | None = None) -> list[str]:
    """Return the ``count`` best checkpoints that ``--keep-best-checkpoints`` left in a folder, best first.

    Raises:
        UserError: there are fewer, or they were kept by several metrics and ``metric`` names none of them.
    """
    pattern = re.compile(r"checkpoint\.best_(.+)_(-?\d+\.?\d*)\.pt")
    by_metric: dict[str, list[tuple[float, str]]] = {}
    for name in os.listdir(folder):
        match = pattern.fullmatch(name)
        if match is not None:
            by_metric.setdefault(match[1], []).append((float(match[2]), name))
    if metric is None and len(by_metric) > 1:
        raise UserError(f"{folder} has best checkpoints by {' and '.join(sorted(by_metric))}; choose one with --metric")
    if metric is not None and metric not in by_metric:
        known = " and ".join(sorted(by_metric)) or "nothing"
        raise UserError(f"--metric {metric}: the best checkpoints of {folder} are by {known}")
    scored = sorted(by_metric[metric] if metric is not None else next(iter(by_metric.values()), []))
    _require(len(scored), count, folder, "checkpoints kept by --keep-best-checkpoints of fairseq-train", "--best")
    first = checkpoints.load_checkpoint(os.path.join(folder, scored[0][1]))
    if checkpoints.options_in(first, "checkpoint").get("maximize_best_checkpoint_metric"):  # larger is better
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
        self._kinds: dict[str, str] = {}
        self._sums: dict[str, Tensor] = {}
        self._last: dict[str, Tensor] = {}
        self._one_in_memory: dict[str, str] = {}

    def add(self, state: StateDict, name: str) -> None:
        """Add a state dict; ``name`` is what an error calls it."""
        require_finite(state.items(), name)
        same = first_of_each_memory(state)
        kinds = {key: _kind(tensor) for key, tensor in state.items()}
        if self.count == 0:
            self._first_name, self._one_in_memory, self._kinds = name, same, kinds
            self._sums = {key: torch.zeros_like(tensor, dtype=torch.float64) for key, tensor in state.items()}
        for key in {**self._kinds, **kinds}:
            before, now = (of.get(key, "missing") for of in (self._kinds, kinds))
            if before != now:
                raise UserError(
                    f"{key} is {now} in {name} and {before} in {self._first_name}; average checkpoints of one model, "
                    "saved in one precision"
                )
        # Keep only what is one in memory in every state.
        groups: dict[tuple[str, str], str] = {}
        self._one_in_memory = {
            key: groups.setdefault((first, same[key]), key) for key, first in self._one_in_memory.items()
        }
        for key, tensor in state.items():
            self._sums[key] += tensor
        # Only types and the few tensors that are not averaged are needed later.
        self._last = {
            key: tensor.new_empty(0) if tensor.is_floating_point() else tensor for key, tensor in state.items()
        }
        self.count += 1

    def result(self) -> dict[str, Tensor]:
        """Return the mean of what was added."""
        mean: dict[str, Tensor] = {}
        for key, last in self._last.items():
            if (first := self._one_in_memory[key]) in mean:
                mean[key] = mean[first]
            else:
                mean[key] = (self._sums[key] / self.count).to(last.dtype) if last.is_floating_point() else last
        return mean


def require_one_depth(paths: Sequence[str]) -> None:
    """Raise UserError where a model has grown between two checkpoints; their tensors are not read."""
    depths = [depths_in(checkpoints.load_checkpoint(path, mapped=True)["model"]) for path in paths]
    other = next((number for number in reversed(range(len(paths))) if depths[number] != depths[-1]), None)
    if other is not None:
        raise UserError(
            f"{paths[-1]} has {_words(depths[-1])} and {paths[other]} {_words(depths[other])}: a model grew between "
            f"them; average checkpoints of one depth, such as the last {len(paths) - 1 - other} of these"
        )


def write_average(paths: Sequence[str], output: str, *, progress: Callable[[str], None] = lambda path: None) -> None:
    """Average checkpoints into one for generation; the file appears whole or not at all.

    It is the last of ``paths`` with the mean parameters and without the optimizer's state, which belongs to no mean;
    ``extra_state`` tells which files went in. ``progress`` is called with each path before it is read.
    """
    _require_different(paths)
    require_one_depth(paths)
    averager = RunningAverage()
    state: dict[str, Any] = {}
    recorded: dict[str, Any] = {}
    options: provenance.Record = {}
    for path in paths:
        progress(path)
        state = checkpoints.load_checkpoint(path)
        # Those of fairseq and older ones have no record.
        of_model, of_task = (Namespace(**checkpoints.options_in(state, part)) for part in ("model", "task"))
        own = {**provenance.of_model(of_model), **provenance.languages_in(of_task)}
        provenance.require_same(path, own, options, paths[0])
        options = {**own, **options}
        provenance.require_same(path, found := provenance.recorded_in(state), recorded, paths[0])
        recorded = {**found, **recorded}
        averager.add(state["model"], path)
    state["model"] = averager.result()
    state["last_optimizer_state"] = None
    extra = state["extra_state"] = dict(state.get("extra_state") or {})
    for key in ("ema", "ema_fp32_params"):
        extra.pop(key, None)
    if recorded:
        extra[provenance.ENTRY] = recorded
    extra["averaged_from"] = [os.path.basename(path) for path in paths]
    checkpoints.save(state, output)


def _require_different(paths: Sequence[str]) -> None:
    """Raise UserError where a checkpoint is given more than once, also as a copy: it would count so often.

    fairseq's ``checkpoint_best.pt`` and ``checkpoint_last.pt`` are copies.
    """
    alike: dict[tuple[int, int], list[str]] = {}
    for path in paths:
        updates = checkpoints.updates_in(checkpoints.load_checkpoint(path, mapped=True))
        others = alike.setdefault((os.path.getsize(path), updates), [])
        for other in others:
            if os.path.samefile(path, other) or file_digest(path) == file_digest(other):
                raise UserError(f"{path} is the same as {other}, which is given; average different checkpoints")
        others.append(path)


def _require(present: int, wanted: int, folder: str, what: str, option: str) -> None:
    if present < wanted:
        raise UserError(f"{option} {wanted}: {folder} holds {present} {what}; give at most that many")


def _kind(tensor: Tensor) -> str:
    return f"{'x'.join(map(str, tensor.shape)) or 'one number'} of {str(tensor.dtype).removeprefix('torch.')}"


def _words(depths: Mapping[str, int]) -> str:
    return " and ".join(f"{layers} {side} layers" for side, layers in depths.items()) or "no layers"
