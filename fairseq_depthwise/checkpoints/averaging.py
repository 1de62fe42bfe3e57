"""Averages the parameters of several checkpoints; fairseq's wheel has no command for it."""

from __future__ import annotations

import math
import os
import re
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairseq_compat import UserError, provenance
from fairseq_compat.checkpoints import require_finite
from fairseq_depthwise.checkpoints.checkpoint import Checkpoint
from fairseq_depthwise.checkpoints.sizes import StateDict, depths_in, first_of_each_memory

#: Opens a checkpoint; share one between choosing and averaging, and each file is opened once.
Opener = Callable[[str], Checkpoint]


class _Saved(NamedTuple):
    """A checkpoint by its name; in the order of training, the end of an epoch comes after all its updates."""

    epoch: int
    updates: float  # infinity for the end of an epoch
    name: str


def saved_checkpoints(folder: str, open_checkpoint: Opener = Checkpoint.open) -> list[str]:
    """Return the checkpoints of a training folder, oldest first.

    A training saves at the end of epochs (``checkpoint3.pt``) and every so many updates (``checkpoint_3_1500.pt``). If
    the last update of an epoch was saved under both names, only ``checkpoint3.pt`` is returned.
    """
    pattern = re.compile(r"checkpoint(?:(?P<whole_epoch>\d+)|_(?P<epoch>\d+)_(?P<updates>\d+))\.pt")
    saved: list[_Saved] = []
    for name in os.listdir(folder):
        if match := pattern.fullmatch(name):
            saved.append(_Saved(int(match["whole_epoch"] or match["epoch"]), float(match["updates"] or math.inf), name))
    sequence: list[_Saved] = []
    for checkpoint in sorted(saved):
        before = sequence[-1] if sequence else None
        if checkpoint.updates == math.inf and before is not None and before.epoch == checkpoint.epoch:
            # An update of the same epoch is before its end: perhaps the same update under its other name.
            updates = open_checkpoint(os.path.join(folder, checkpoint.name)).updates
            if updates == before.updates:
                sequence.pop()
        sequence.append(checkpoint)
    return [os.path.join(folder, checkpoint.name) for checkpoint in sequence]


def last_checkpoints(folder: str, count: int, open_checkpoint: Opener = Checkpoint.open) -> list[str]:
    """Return the ``count`` newest of :func:`saved_checkpoints`, oldest first; all of them if there are fewer.

    Raises:
        UserError: there are none.
    """
    saved = saved_checkpoints(folder, open_checkpoint)
    pattern = "checkpoints named checkpointEPOCH.pt or checkpoint_EPOCH_UPDATES.pt"
    _require_some(saved, count, folder, pattern, "--last")
    return saved[-count:]


def best_checkpoints(
    folder: str, count: int, metric: str | None = None, open_checkpoint: Opener = Checkpoint.open
) -> list[str]:
    """Return the ``count`` best checkpoints that ``--keep-best-checkpoints`` left in a folder, best first.

    If there are fewer, all of them are returned.

    Raises:
        UserError: there are none, or they were kept by several metrics and ``metric`` names none of them.
    """
    # Groups: metric and value, as in checkpoint.best_bleu_27.35.pt.
    pattern = re.compile(r"checkpoint\.best_(.+)_(-?\d+\.?\d*)\.pt")
    by_metric: dict[str, list[tuple[float, str]]] = {}
    for name in os.listdir(folder):
        match = pattern.fullmatch(name)
        if match is not None:
            by_metric.setdefault(match[1], []).append((float(match[2]), name))
    if metric is None and len(by_metric) > 1:
        raise UserError(f"{folder} has best checkpoints by {' and '.join(sorted(by_metric))}; choose one with --metric")
    if metric is not None and by_metric and metric not in by_metric:
        raise UserError(f"--metric {metric}: the best checkpoints of {folder} are by {' and '.join(sorted(by_metric))}")
    chosen_metric = metric or next(iter(by_metric), "")  # the only one
    scored = sorted(by_metric.get(chosen_metric, []))  # the smallest first
    _require_some(scored, count, folder, "checkpoints kept by --keep-best-checkpoints of fairseq-train", "--best")
    # Every checkpoint of the folder says whether larger is better.
    options = open_checkpoint(os.path.join(folder, scored[0][1])).options_of("checkpoint")
    if options.get("maximize_best_checkpoint_metric"):
        scored.reverse()
    return [os.path.join(folder, name) for _, name in scored[:count]]


class RunningAverage:
    """The element-wise mean of state dicts of one model, added one by one.

    Floating-point tensors are summed in float64, and their mean has each tensor's own type; other tensors (counters)
    are taken from the last state. Tensors that share memory in every state (tied embeddings, shared gates) share it in
    the result.
    """

    def __init__(self) -> None:
        self.count = 0
        self._first_name = ""
        self._kinds: dict[str, str] = {}
        self._sums: dict[str, Tensor] = {}
        self._last: dict[str, Tensor] = {}
        # Name -> the first name with which it shares memory in every state so far.
        self._tied_to: dict[str, str] = {}

    def add(self, state: StateDict, name: str) -> None:
        """Add a state dict; errors refer to it as ``name``."""
        # 1. The same parameters, of the same shapes and types, as in the first.
        require_finite(state.items(), name)
        tied_now = first_of_each_memory(state)
        kinds = {key: _kind(tensor) for key, tensor in state.items()}
        if self.count == 0:
            self._first_name, self._tied_to, self._kinds = name, tied_now, kinds
            self._sums = {key: torch.zeros_like(tensor, dtype=torch.float64) for key, tensor in state.items()}
        for key in {**self._kinds, **kinds}:
            before, now = self._kinds.get(key, "missing"), kinds.get(key, "missing")
            if before != now:
                raise UserError(
                    f"{key} is {now} in {name} and {before} in {self._first_name}; average checkpoints of one model, "
                    "saved in one precision"
                )
        # 2. Names that were tied so far stay tied only if they are tied in this state, too.
        first_of_group: dict[tuple[str, str], str] = {}
        for key, first in self._tied_to.items():
            self._tied_to[key] = first_of_group.setdefault((first, tied_now[key]), key)
        # 3. Add up.
        for key, tensor in state.items():
            self._sums[key] += tensor
        # Of a tensor that is averaged, only the type is needed later.
        self._last = {
            key: tensor.new_empty(0) if tensor.is_floating_point() else tensor for key, tensor in state.items()
        }
        self.count += 1

    def result(self) -> dict[str, Tensor]:
        """Return the mean of the states."""
        mean: dict[str, Tensor] = {}
        for key, last in self._last.items():
            first = self._tied_to[key]
            if first in mean:
                mean[key] = mean[first]
            elif last.is_floating_point():
                mean[key] = (self._sums[key] / self.count).to(last.dtype)
            else:
                mean[key] = last
        return mean


def average(checkpoints: Sequence[Checkpoint], *, progress: Callable[[str], None] = lambda path: None) -> Checkpoint:
    """Return the average of checkpoints. It can generate, but not resume a training.

    It is the last checkpoint with the mean parameters and without the optimizer's state, which cannot be averaged; its
    ``extra_state`` names the files. ``progress`` is called with each path before its parameters are read.

    Raises:
        UserError: there are none, two are the same, or they are not of one model, one depth and one precision.
    """
    if not checkpoints:
        raise UserError("there are no checkpoints to average; name one or more")
    for checkpoint in checkpoints:
        if checkpoint.is_exported:
            raise UserError(f"{checkpoint.path} was exported; average the checkpoints, and export their mean")
    _require_one_depth(checkpoints)
    recorded = _common_provenance(checkpoints)
    _require_different(checkpoints)
    averager = RunningAverage()
    for checkpoint in checkpoints:
        progress(checkpoint.path)
        averager.add(checkpoint.parameters, checkpoint.path)

    # Everything else is the last checkpoint's, except the moving averages of --store-ema, which are of its parameters.
    last = checkpoints[-1]
    extra_state: dict[str, Any] = dict(last.state.get("extra_state") or {})
    for moving_average in ("ema", "ema_fp32_params"):
        extra_state.pop(moving_average, None)
    if recorded:
        extra_state[provenance.ENTRY] = recorded
    extra_state["averaged_from"] = [os.path.basename(checkpoint.path) for checkpoint in checkpoints]
    return last.with_entries(model=averager.result(), last_optimizer_state=None, extra_state=extra_state)


def _common_provenance(checkpoints: Sequence[Checkpoint]) -> provenance.Record:
    """Return the provenance of all checkpoints; raise UserError if it, or an option of the models, differs."""
    options: provenance.Record = {}
    recorded: provenance.Record = {}
    first = checkpoints[0]
    for checkpoint in checkpoints:
        # Checkpoints of fairseq, and older ones, have options but no provenance.
        model_options = provenance.of_model(Namespace(**checkpoint.options))
        languages = provenance.languages_in(Namespace(**checkpoint.options_of("task")))
        provenance.require_same(checkpoint.path, {**model_options, **languages}, options, first.path)
        provenance.require_same(checkpoint.path, checkpoint.provenance, recorded, first.path)
        # The first checkpoint that names something decides; the others have just been compared with it.
        options = {**model_options, **languages, **options}
        recorded = {**checkpoint.provenance, **recorded}
    return recorded


def _require_different(checkpoints: Sequence[Checkpoint]) -> None:
    """Raise UserError if a checkpoint is given twice, perhaps as a copy: its weight would double.

    fairseq's ``checkpoint_best.pt`` and ``checkpoint_last.pt`` are copies of others.
    """
    by_updates: dict[int, list[Checkpoint]] = {}
    for checkpoint in checkpoints:
        # Equal checkpoints have equal numbers of updates, so few have to be compared value by value.
        similar = by_updates.setdefault(checkpoint.updates, [])
        for other in similar:
            if _have_same_parameters(checkpoint, other):
                raise UserError(
                    f"{checkpoint.path} is the same as {other.path}, which is also given; average different checkpoints"
                )
        similar.append(checkpoint)


def _have_same_parameters(first: Checkpoint, second: Checkpoint) -> bool:
    if first.parameters.keys() != second.parameters.keys():
        return False
    for name, value in first.parameters.items():
        other_value = second.parameters[name]
        if value.dtype != other_value.dtype or not torch.equal(value, other_value):
            return False
    return True


def _require_one_depth(checkpoints: Sequence[Checkpoint]) -> None:
    """Raise UserError if a model has grown between two checkpoints; their tensors are not read."""
    depths = [depths_in(checkpoint.parameters) for checkpoint in checkpoints]
    # From the last one back: how many have its depth?
    last = len(checkpoints) - 1
    for number in reversed(range(last)):
        if depths[number] != depths[last]:
            raise UserError(
                f"{checkpoints[last].path} has {_in_words(depths[last])} and {checkpoints[number].path} "
                f"{_in_words(depths[number])}: a model grew between them; average checkpoints of one depth, such as "
                f"the last {last - number} of these"
            )


def _require_some(present: Sequence[Any], wanted: int, folder: str, kind: str, option: str) -> None:
    if wanted < 1:
        raise UserError(f"{option} {wanted}: give at least 1")
    if not present:
        raise UserError(f"{option} {wanted}: {folder} holds no {kind}; name the files to average")


def _kind(tensor: Tensor) -> str:
    shape = "x".join(map(str, tensor.shape)) or "scalar"
    return f"{shape} of {str(tensor.dtype).removeprefix('torch.')}"


def _in_words(depths: Mapping[str, int]) -> str:
    return " and ".join(f"{layers} {side} layers" for side, layers in depths.items()) or "no layers"
