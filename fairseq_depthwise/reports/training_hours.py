"""Hours of a training, and the fraction of them that another training saves, as papers report them.

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
        hours: sum over all processes.
        device: "CPU" or "GPU"; both, if the training moved from one to the other.
        processes: number of processes, one for each GPU; several numbers if it changed.
        precision: fp32, bf16, fp16 or mixed precision; several if it changed.
        updates: number of updates.
        ended: whether the training finished; False if it was killed or is still running.
    """

    hours: float
    device: str
    processes: str
    precision: str
    updates: int
    ended: bool

    @property
    def machine(self) -> str:
        """The hardware and precision, such as ``8 GPU, bf16``."""
        return f"{self.processes} {self.device}, {self.precision}"


class Window(NamedTuple):
    """Seconds in training steps between two updates."""

    begin: int
    end: int
    seconds: float


def training_time(run: Run) -> TrainingTime | None:
    """Return the hours of a run; None if its log lacks the options of fairseq-train or the seconds of its steps."""
    windows = list(_split_into_windows(run))
    if not windows or not run.starts:
        return None
    seconds = sum(window.seconds * _compute_mean_processes(run, window) for window in windows)
    return TrainingTime(
        hours=seconds / 3600,
        device=_join_unique(_find_device(run, start) for start in run.starts),
        processes=_join_unique(str(_count_processes(start)) for start in run.starts),
        precision=_join_unique(map(_find_precision, run.starts)),
        updates=run.updates,
        ended=run.ended,
    )


def why_not_comparable(time: TrainingTime, baseline: TrainingTime) -> str | None:
    """Return why the hours of two trainings cannot be compared; None if they can."""
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
    """Return the fraction of the baseline's hours that a training saved; None if they cannot be compared."""
    if why_not_comparable(time, baseline):
        return None
    return 1 - time.hours / baseline.hours


def _split_into_windows(run: Run) -> Iterator[Window]:
    """Yield the seconds of each finished epoch, then the seconds after the last of them."""
    # A finished epoch has all its seconds in one line.
    done = 0
    for _, epoch in sorted(run.epochs.items()):
        yield Window(done, epoch.update, epoch.seconds)
        done = epoch.update
    # The unfinished epoch has a line every --log-interval updates; the first may begin within the epoch before.
    before = 0
    for reading in run.readings:
        if reading.split != TRAINING[0] or "train_wall" not in reading.values:
            continue
        update, seconds = reading.update, reading.values["train_wall"]
        # Count only the part of the first line after the last epoch.
        begin = max(before, done)
        if update > begin:
            yield Window(begin, update, seconds * (update - begin) / (update - before))
        before = update


def _compute_mean_processes(run: Run, window: Window) -> float:
    """Return the number of processes in a window; if it changed within the window, the mean over time."""
    # In most runs it never changes.
    if len({_count_processes(start) for start in run.starts}) == 1:
        return _count_processes(run.starts[0])
    # Number of processes -> seconds within the window, by fairseq's clock.
    seconds: dict[int, float] = defaultdict(float)
    before = 0.0
    for reading in run.readings:
        if window.begin < reading.update <= window.end:
            processes = _count_processes(_find_start(run, reading.update))
            seconds[processes] += reading.seconds - before
        before = reading.seconds
    total = sum(seconds.values())
    if total == 0:  # nothing was logged within the window
        return _count_processes(_find_start(run, window.end))
    return sum(processes * spent for processes, spent in seconds.items()) / total


def _find_start(run: Run, update: int) -> Start:
    """Return the start of the process that ran an update."""
    latest = run.starts[0]
    for start in run.starts:
        if start.update < update:
            latest = start
    return latest


def _count_processes(start: Start) -> int:
    return int(start.options.get("--distributed-world-size", "1"))


def _find_device(run: Run, start: Start) -> str:
    """Return where a process ran: fairseq logs free memory only on GPUs."""
    for reading in run.readings:
        if "gb_free" in reading.values and _find_start(run, reading.update) is start:
            return "GPU"
    return "CPU"


def _find_precision(start: Start) -> str:
    for precision, options in _PRECISIONS.items():
        if any(option in start.options for option in options):
            return precision
    return "fp32"


def _join_unique(texts: Iterator[str]) -> str:
    """Return the distinct texts, in order, joined with "and"."""
    return " and ".join(dict.fromkeys(texts))
