"""Hours of a training and the share of them that another training saves, as papers report them.

Hours are the seconds in training steps (fairseq's ``train_wall``: forward, backward, update, and exchanging gradients),
multiplied by the number of GPUs, or of processes on a CPU. Validation, saving, reading data, growing, start-up and
pauses do not count, nor do updates that were lost when a process was killed and that the next one computed again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from fairseq_depthwise.reports.training_log import TRAINING, Run, Start

#: Precision -> options of fairseq-train that select it.
_PRECISIONS = {
    "bf16": ("--bf16", "--memory-efficient-bf16"),
    "fp16": ("--fp16", "--memory-efficient-fp16"),
    "mixed precision": ("--amp",),
}


@dataclass(frozen=True)
class TrainingTime:
    """How long a training took, and on what.

    Attributes:
        hours: of all processes together.
        device: "CPU" or "GPU"; both, if the training moved from one to the other.
        processes: one for each GPU; several numbers if they changed.
        precision: fp32, bf16, fp16 or mixed precision; several if it changed.
        updates: how many the training had.
        ended: whether it finished, rather than was killed or is still running.
    """

    hours: float
    device: str
    processes: str
    precision: str
    updates: int
    ended: bool

    @property
    def machine(self) -> str:
        """Return where it was trained, such as ``8 GPU, bf16``."""
        return f"{self.processes} {self.device}, {self.precision}"


class Window(NamedTuple):
    """Seconds in training steps between two updates."""

    begin: int
    end: int
    seconds: float


def training_time(run: Run) -> TrainingTime | None:
    """Return the hours of a run; None if its log lacks the options of fairseq-train or the seconds of its steps."""
    windows = list(_windows(run))
    if not windows or not run.starts:
        return None
    seconds = sum(window.seconds * _mean_processes(run, window) for window in windows)
    return TrainingTime(
        hours=seconds / 3600,
        device=_joined(_device(run, start) for start in run.starts),
        processes=_joined(str(_processes(start)) for start in run.starts),
        precision=_joined(map(_precision, run.starts)),
        updates=run.updates,
        ended=run.ended,
    )


def why_not_comparable(time: TrainingTime, baseline: TrainingTime) -> str | None:
    """Return why the hours of two trainings say nothing about each other; None if they do."""
    if not time.ended:
        return f"the training has not ended, after {time.updates:,} updates"
    if not baseline.ended:
        return f"the baseline's training has not ended, after {baseline.updates:,} updates"
    if time.device != baseline.device:
        return f"trained on {time.device}, the baseline on {baseline.device}"
    if time.precision != baseline.precision:
        return f"trained in {time.precision}, the baseline in {baseline.precision}"
    if baseline.hours == 0:
        return "the baseline's steps took less time than its log can show"
    return None


def share_saved(time: TrainingTime, baseline: TrainingTime) -> float | None:
    """Return the part of the baseline's hours that a training did not need; None if they cannot be compared."""
    if why_not_comparable(time, baseline):
        return None
    return 1 - time.hours / baseline.hours


def _windows(run: Run) -> Iterator[Window]:
    """Yield the seconds of each epoch, then those since the last line of an epoch."""
    # A finished epoch has all its seconds in one line.
    done = 0
    for _, epoch in sorted(run.epochs.items()):
        yield Window(done, epoch.update, epoch.seconds)
        done = epoch.update
    # A training that has not ended: a line every --log-interval updates, the first of which may have begun before.
    before = 0
    for reading in run.readings:
        if reading.split != TRAINING[0] or "train_wall" not in reading.values:
            continue
        update, seconds = reading.update, reading.values["train_wall"]
        # Of the first line, only the part after the last epoch's line.
        begin = max(before, done)
        if update > begin:
            yield Window(begin, update, seconds * (update - begin) / (update - before))
        before = update


def _mean_processes(run: Run, window: Window) -> float:
    """Return how many processes computed a window; if their number changed within it, the mean over its time."""
    # Most runs have one number, for which no reading is needed.
    if len({_processes(start) for start in run.starts}) == 1:
        return _processes(run.starts[0])
    # Number of processes -> seconds of the window, by fairseq's clock.
    seconds: dict[int, float] = defaultdict(float)
    before = 0.0
    for reading in run.readings:
        if window.begin < reading.update <= window.end:
            processes = _processes(_start_of(run, reading.update))
            seconds[processes] += reading.seconds - before
        before = reading.seconds
    total = sum(seconds.values())
    if total == 0:  # nothing was logged within the window
        return _processes(_start_of(run, window.end))
    return sum(processes * spent for processes, spent in seconds.items()) / total


def _start_of(run: Run, update: int) -> Start:
    """Return the start of the process that computed an update."""
    latest = run.starts[0]
    for start in run.starts:
        if start.update < update:
            latest = start
    return latest


def _processes(start: Start) -> int:
    return int(start.options.get("--distributed-world-size", "1"))


def _device(run: Run, start: Start) -> str:
    """Return where a process computed: fairseq logs free memory on GPUs only."""
    for reading in run.readings:
        if "gb_free" in reading.values and _start_of(run, reading.update) is start:
            return "GPU"
    return "CPU"


def _precision(start: Start) -> str:
    for precision, options in _PRECISIONS.items():
        if any(option in start.options for option in options):
            return precision
    return "fp32"


def _joined(texts: Iterator[str]) -> str:
    """Return different texts, each once, in order."""
    return " and ".join(dict.fromkeys(texts))
