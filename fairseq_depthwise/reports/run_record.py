"""The metrics of a training run, and how the processes of a run that was continued become one run."""

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
        update: number of updates done when it was measured.
        at: seconds on a clock that runs as long as the process does; None where the log has no times.
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
        readings: in the order of the log.
        started: when, on the clock of the readings.
        continued_from: updates of the checkpoint that was loaded.
        grown: updates -> the growth after them.
        config: fairseq's configuration, groups of options.
        parameters: of the model, as last logged.
    """

    readings: list[Reading] = field(default_factory=list)
    started: float | None = None
    continued_from: int | None = None
    grown: dict[int, str] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    parameters: int | None = None

    @property
    def clock_start(self) -> float | None:
        """When training began, on the clock of the readings: fairseq's ``wall`` counts from there."""
        for reading in self.readings:
            if reading.at is not None and "wall" in reading.values:
                return reading.at - reading.values["wall"]
        if self.started is not None:
            return self.started
        return next((reading.at for reading in self.readings if reading.at is not None), None)


@dataclass
class Series:
    """The values of one metric, with the updates and seconds of training after which each was measured."""

    updates: list[int] = field(default_factory=list)
    seconds: list[float | None] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


@dataclass
class RunRecord:
    """A training run.

    Attributes:
        source: the log.
        series: split -> metric -> its values in the order of updates.
        config, parameters: of the last process that logged them.
        grown: updates -> the growth after them; empty text where the log only shows another depth.
        continued_at: updates after which a stopped run was continued.
        notes: sentences for readers of the numbers.
        versions: of the packages that wrote the run's checkpoint.
        versions_from: the name of that checkpoint.
    """

    source: str
    series: dict[str, dict[str, Series]]
    config: dict[str, Any] = field(default_factory=dict)
    parameters: int | None = None
    grown: dict[int, str] = field(default_factory=dict)
    continued_at: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    versions_from: str | None = None

    @property
    def validation(self) -> str | None:
        """The first validation set, by which fairseq chooses checkpoints."""
        others = [split for split in self.series if split not in (INNER, EPOCH)]
        named = str(self.config.get("dataset", {}).get("valid_subset") or "").split(",")
        return next((split for split in named if split in others), others[0] if others else None)

    def of_training(self, metric: str) -> Series | None:
        """Return a metric of training, as often as it was logged."""
        splits = (self.series.get(split, {}) for split in (INNER, EPOCH))
        return next((split[metric] for split in splits if metric in split), None)

    def of_validation(self, metric: str) -> Series | None:
        """Return a metric of the first validation set."""
        return self.series.get(self.validation or "", {}).get(metric)


def joined(processes: Sequence[Process], source: str) -> RunRecord:
    """Join the processes of a run, in their order.

    Where a process repeats updates, as after a kill, its readings replace the earlier ones. Seconds are those of
    training that counts: pauses, start-up and repeated work are left out.
    """
    readings: dict[tuple[str, int], tuple[float | None, Mapping[str, float]]] = {}
    record = RunRecord(source, {})
    for process in processes:
        record.config = process.config or record.config
        record.parameters = process.parameters or record.parameters
        if not process.readings:
            continue
        first = min(reading.update for reading in process.readings)
        begin = first - 1 if process.continued_from is None else min(process.continued_from, first)
        if readings:
            readings = {place: reading for place, reading in readings.items() if place[1] <= begin}
            record.grown = {update: text for update, text in record.grown.items() if update <= begin}
            record.continued_at = [update for update in record.continued_at if update < begin]
            if readings:
                record.continued_at.append(begin)
            else:
                record.notes.append("It was begun anew; what was logged before is left out.")
        before = max((seconds for seconds, _ in readings.values() if seconds is not None), default=0.0)
        start = process.clock_start
        for reading in process.readings:
            seconds = None if reading.at is None or start is None else before + max(0.0, reading.at - start)
            readings[reading.split, reading.update] = (seconds, reading.values)
        record.grown |= process.grown
    for (split, update), (seconds, values) in sorted(readings.items(), key=lambda item: item[0][1]):
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
    """Return where a logged depth changes, for logs without the lines about growth."""
    depth = record.of_training("depth")
    readings: Iterable[tuple[int, float]] = zip(depth.updates, depth.values, strict=True) if depth else ()
    return {before[0]: "" for before, after in pairwise(readings) if after[1] != before[1]}
