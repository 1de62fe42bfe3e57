"""The mean of several checkpoints' parameters, which fairseq's wheel has no command for."""

from __future__ import annotations

import os
import re
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fairseq_compat import UserError, provenance
from fairseq_compat.checkpoints import require_finite
from fairseq_depthwise.checkpoints.checkpoint import Checkpoint
from fairseq_depthwise.checkpoints.sizes import StateDict, depths_in, first_of_each_memory

#: Opens a checkpoint; the same one for choosing and for averaging, so that each file is opened once.
Opener = Callable[[str], Checkpoint]


def saved_checkpoints(folder: str, open_checkpoint: Opener = Checkpoint.open) -> list[str]:
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
            # The end of an epoch, and an update of the same epoch before it: perhaps the same update.
            end_of_epoch = open_checkpoint(os.path.join(folder, match[0])).updates
            if end_of_epoch == int(before[3]):
                sequence.pop()
        sequence.append(match)
    return [os.path.join(folder, match[0]) for match in sequence]


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
    _require_some(scored, count, folder, "checkpoints kept by --keep-best-checkpoints of fairseq-train", "--best")
    options = open_checkpoint(os.path.join(folder, scored[0][1])).options_of("checkpoint")
    if options.get("maximize_best_checkpoint_metric"):  # larger is better
        scored.reverse()
    return [os.path.join(folder, name) for _, name in scored[:count]]


class RunningAverage:
    """The element-wise mean of state dicts of one model, which are added one after the other.

    Floating-point tensors are summed in float64, and the mean has each tensor's own type; all others (counters) are
    those of the last state. Tensors that share memory in every state (tied embeddings, shared gates) share it in the
    result.
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
        # 1. The same parameters, of the same shapes and types, as in the first.
        require_finite(state.items(), name)
        same = first_of_each_memory(state)
        kinds = {key: _kind(tensor) for key, tensor in state.items()}
        if self.count == 0:
            self._first_name, self._one_in_memory, self._kinds = name, same, kinds
            self._sums = {key: torch.zeros_like(tensor, dtype=torch.float64) for key, tensor in state.items()}
        for key in {**self._kinds, **kinds}:
            before, now = self._kinds.get(key, "missing"), kinds.get(key, "missing")
            if before != now:
                raise UserError(
                    f"{key} is {now} in {name} and {before} in {self._first_name}; average checkpoints of one model, "
                    "saved in one precision"
                )
        # 2. Keep only what is one in memory in every state.
        groups: dict[tuple[str, str], str] = {}
        self._one_in_memory = {
            key: groups.setdefault((first, same[key]), key) for key, first in self._one_in_memory.items()
        }
        # 3. Add up.
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
            first = self._one_in_memory[key]
            if first in mean:
                mean[key] = mean[first]
            elif last.is_floating_point():
                mean[key] = (self._sums[key] / self.count).to(last.dtype)
            else:
                mean[key] = last
        return mean


def average(checkpoints: Sequence[Checkpoint], *, progress: Callable[[str], None] = lambda path: None) -> Checkpoint:
    """Return the average of checkpoints, for generation.

    It is the last of them with the mean parameters and without the optimizer's state, which belongs to no mean; its
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

    # Everything else is the last checkpoint's, but for what belongs to its own parameters.
    last = checkpoints[-1]
    extra_state: dict[str, Any] = dict(last.state.get("extra_state") or {})
    for moving_average in ("ema", "ema_fp32_params"):
        extra_state.pop(moving_average, None)
    if recorded:
        extra_state[provenance.ENTRY] = recorded
    extra_state["averaged_from"] = [os.path.basename(checkpoint.path) for checkpoint in checkpoints]
    return last.with_entries(model=averager.result(), last_optimizer_state=None, extra_state=extra_state)


def _common_provenance(checkpoints: Sequence[Checkpoint]) -> provenance.Record:
    """Return the provenance of all checkpoints; raise UserError where it, or an option of the models, differs."""
    options: provenance.Record = {}
    recorded: provenance.Record = {}
    first = checkpoints[0]
    for checkpoint in checkpoints:
        # Checkpoints of fairseq and older ones have no provenance, but options.
        model_options = provenance.of_model(Namespace(**checkpoint.options))
        languages = provenance.languages_in(Namespace(**checkpoint.options_of("task")))
        provenance.require_same(checkpoint.path, {**model_options, **languages}, options, first.path)
        provenance.require_same(checkpoint.path, checkpoint.provenance, recorded, first.path)
        options = {**model_options, **languages, **options}
        recorded = {**checkpoint.provenance, **recorded}
    return recorded


def _require_different(checkpoints: Sequence[Checkpoint]) -> None:
    """Raise UserError where a checkpoint is given more than once, also as a copy: it would count so often.

    fairseq's ``checkpoint_best.pt`` and ``checkpoint_last.pt`` are copies.
    """
    by_updates: dict[int, list[Checkpoint]] = {}
    for checkpoint in checkpoints:
        similar = by_updates.setdefault(checkpoint.updates, [])
        for other in similar:
            if _have_same_parameters(checkpoint, other):
                raise UserError(
                    f"{checkpoint.path} is the same as {other.path}, which is given; average different checkpoints"
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
    """Raise UserError where a model has grown between two checkpoints; their tensors are not read."""
    depths = [depths_in(checkpoint.parameters) for checkpoint in checkpoints]
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
    shape = "x".join(map(str, tensor.shape)) or "one number"
    return f"{shape} of {str(tensor.dtype).removeprefix('torch.')}"


def _in_words(depths: Mapping[str, int]) -> str:
    return " and ".join(f"{layers} {side} layers" for side, layers in depths.items()) or "no layers"
