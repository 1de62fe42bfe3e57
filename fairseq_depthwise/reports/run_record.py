"""What is known of a training run, whichever file it was read from, and how the processes of a run become one run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

#: The splits of fairseq that are not validation: every ``--log-interval`` updates, and every epoch.
INNER, EPOCH = "train_inner", "train"


@dataclass(frozen=True)
class Reading:
    """What was logged at one update.

    Attributes:
        split: ``train_inner``, ``train``, or the name of a validation set.
        update: behind which it was measured.
        at: seconds on a clock that goes on while the process does; None where the file has no clock.
        values: name -> value, which may be nan or infinite.
    """

    split: str
    update: int
    at: float | None
    values: Mapping[str, float]


@dataclass
class Process:
    """What one process logged. A run that was stopped and continued has several.

    Attributes:
        readings: in the order of the file.
        started: when, on the clock of the readings.
        continued_from: updates behind the checkpoint that was loaded.
        grown: updates -> what was grown behind them.
        config: fairseq's configuration, groups of options.
        command: the command line.
        parameters: of the model when it was built.
    """

    readings: list[Reading] = field(default_factory=list)
    started: float | None = None
    continued_from: int | None = None
    grown: dict[int, str] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    command: str | None = None
    parameters: int | None = None

    @property
    def clock_start(self) -> float | None:
        """When the training began on the clock of the readings: fairseq's ``wall`` counts from there."""
        for reading in self.readings:
            if reading.at is not None and "wall" in reading.values:
                return reading.at - reading.values["wall"]
        if self.started is not None:
            return self.started
        return next((reading.at for reading in self.readings if reading.at is not None), None)


@dataclass
class Series:
    """One metric: its values, and the updates and seconds of training behind which each was measured."""

    updates: list[int] = field(default_factory=list)
    seconds: list[float | None] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


@dataclass
class RunRecord:
    """A training run.

    Attributes:
        source: the file or folder it was read from.
        series: split -> metric -> its values in the order of updates.
        config, command, parameters: as of the last process that says them.
        grown: updates -> what was grown behind them; empty text where the file only shows another depth.
        continued_at: updates behind which a stopped run went on.
        notes: what a reader of the numbers should know, in sentences.
        versions: of what wrote the checkpoint beside the log.
        versions_from: the name of that checkpoint.
    """

    source: str
    series: dict[str, dict[str, Series]]
    config: dict[str, Any] = field(default_factory=dict)
    command: str | None = None
    parameters: int | None = None
    grown: dict[int, str] = field(default_factory=dict)
    continued_at: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    versions_from: str | None = None

    @property
    def validation(self) -> str | None:
        """The validation set that fairseq chooses checkpoints by: the first one."""
        others = [split for split in self.series if split not in (INNER, EPOCH)]
        named = str(self.config.get("dataset", {}).get("valid_subset") or "").split(",")
        return next((split for split in named if split in others), others[0] if others else None)

    def of_training(self, metric: str) -> Series | None:
        """A metric of training, as often as it was logged."""
        return next(
            (found[metric] for split in (INNER, EPOCH) if metric in (found := self.series.get(split, {}))), None
        )

    def of_validation(self, metric: str) -> Series | None:
        """A metric of the first validation set."""
        return self.series.get(self.validation or "", {}).get(metric)


def joined(processes: Sequence[Process], source: str) -> RunRecord:
    """The run that one process began and the others, in their order, continued.

    Where a process repeats updates, as after a kill, its readings stand. Seconds are those of training that counts: the
    clock goes on where the updates do, so pauses, starting up and repeated work are left out.
    """
    kept: dict[tuple[str, int], tuple[float | None, Mapping[str, float]]] = {}
    record = RunRecord(source, {})
    for process in processes:
        record.config = process.config or record.config
        record.command = process.command or record.command
        record.parameters = process.parameters or record.parameters
        if not process.readings:
            continue
        first = min(reading.update for reading in process.readings)
        begin = first - 1 if process.continued_from is None else min(process.continued_from, first)
        if kept:
            kept = {place: reading for place, reading in kept.items() if place[1] <= begin}
            record.grown = {update: text for update, text in record.grown.items() if update <= begin}
            record.continued_at = [update for update in record.continued_at if update < begin]
            if kept:
                record.continued_at.append(begin)
            else:
                record.notes.append("It was begun anew; what was logged before is left out.")
        behind = max((seconds for seconds, _ in kept.values() if seconds is not None), default=0.0)
        start = process.clock_start
        for reading in process.readings:
            seconds = None if reading.at is None or start is None else behind + max(0.0, reading.at - start)
            kept[reading.split, reading.update] = (seconds, reading.values)
        record.grown |= process.grown
    for (split, update), (seconds, values) in sorted(kept.items(), key=lambda one: one[0][1]):
        for metric, value in values.items():
            series = record.series.setdefault(split, {}).setdefault(metric, Series())
            series.updates.append(update)
            series.seconds.append(seconds)
            series.values.append(value)
    record.grown = dict(sorted((record.grown or _changes_of_depth(record)).items()))
    if record.continued_at:
        where = ", ".join(f"{update:,}" for update in record.continued_at)
        record.notes.append(f"It was continued after update {where}; times leave out the pause.")
    return record


def _changes_of_depth(record: RunRecord) -> dict[int, str]:
    """Where a logged depth changes, for files without the lines that say so."""
    depth = record.of_training("depth")
    readings: Iterable[tuple[int, float]] = zip(depth.updates, depth.values, strict=True) if depth else ()
    return {before[0]: "" for before, after in pairwise(readings) if after[1] != before[1]}
