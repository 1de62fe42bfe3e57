"""Read training runs: logs of fairseq in its formats json, simple and tqdm, or event files of TensorBoard."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_compat import UserError
from fairseq_depthwise.options import require_extra

#: fairseq's names of splits that are not validation: of every ``--log-interval`` updates, and of every epoch.
TRAINING = ("train_inner", "train")

#: The start of a line that is a message and not metrics, in the log of ``fairseq-depthwise train``.
_MESSAGE = '{"time": '
_PARAMETERS = re.compile(r"num\. shared model params: ([\d,]+) |grew the .* in [\d.]+ s; ([\d,]+) parameters")
#: The last line of a training that was not interrupted.
_ENDED = re.compile(r"done training in [\d.]+ seconds$")
#: Metrics of --log-interval updates in the formats simple and tqdm: the epoch, and name=value with commas between.
_INNER_METRICS = re.compile(r"epoch (\d+):(?: +\d+ / \d+ |.*\[[^],]*,[^],]*, )(\w+=[^]]*)")
#: Metrics of an epoch or a validation in these formats: the epoch, the validation set, and | name value for each.
_EPOCH_METRICS = re.compile(r"epoch (\d+)(?: \| valid on '([^']*)' subset)?((?: \| \w+ [^ |]+)+)$")
#: In the line with all options: a choice, as 'model': {'_name': 'transformer', and a value, as 'seed': 1 or seed=1.
_CHOICE = re.compile(r"'(\w+)': \{'_name': '(\w+)'")
_OPTION = re.compile(r"\b([a-z]\w*)'?(?:: |=)('[^']*'|\[[^\]]*\]|\([^)]*\)|[^\s,{}()]+)")
#: Values of options that are off.
_OFF = ("", "None", "False", "[]", "Namespace")

#: No line of fairseq's is longer; a damaged one could take hours.
_LONGEST_LINE = 100_000
#: A second copy of a line may come this many readings after the first.
_LATEST = 20
#: Errors that reading a damaged line may raise.
_DAMAGE_ERRORS = (ValueError, TypeError, OverflowError, StopIteration, RecursionError)

#: The values of a metric, and the updates and seconds of training after which each was measured.
Series = dict[str, list[float]]


class Reading(NamedTuple):
    """The metrics of a split of the data, and the updates and seconds of training before it."""

    split: str
    update: int
    seconds: float
    values: dict[str, float]


class Start(NamedTuple):
    """The options of fairseq-train that began or continued a training; its first reading is after ``update``."""

    update: int
    options: dict[str, str]


class Epoch(NamedTuple):
    """The last line of an epoch: the latest update, and the seconds in training steps."""

    update: int
    seconds: float


class Growth(NamedTuple):
    """The last update and second of training that were logged before the model grew to ``depth`` layers."""

    update: int
    seconds: float
    depth: int


@dataclass
class Run:
    """A training run, by one process or by several that continued from each other's checkpoints.

    Attributes:
        source: the log, or the folder of several logs or of event files.
        files: the logs, or the folder of event files.
        readings: the logged metrics, in order.
        options: options of the last process.
        updates: number of updates.
        seconds: time of training, without pauses, start-up and repeated updates.
        parameters: number of parameters that was logged last, after ``counted`` updates.
        continued: the updates after which another process continued.
        starts: the options of each process, for :mod:`fairseq_depthwise.reports.training_hours`.
        epochs: number of an epoch -> its last line, for the same.
        ended: whether fairseq-train finished.
        begins: whether the next reading is the first of a process.
        wall: fairseq's clock, which starts at 0 in every process.
        seconds_before: time of training in earlier processes.
    """

    source: str
    files: list[str] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)
    updates: int = 0
    seconds: float = 0.0
    parameters: int | None = None
    counted: int = 0
    continued: list[int] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    epochs: dict[int, Epoch] = field(default_factory=dict)
    ended: bool = False
    begins: bool = False
    wall: float = 0.0
    seconds_before: float = 0.0

    # --- reading ---

    def read_file(self, log: Path) -> None:
        """Read a log, without its damaged lines; tqdm ends lines with a carriage return."""
        with open(log, encoding="utf-8", errors="replace") as file:
            for line in file:
                if len(line) < _LONGEST_LINE:
                    with suppress(*_DAMAGE_ERRORS):
                        self.read_line(line)

    def read_line(self, line: str) -> None:
        """Read a line of a log: options, metrics, parameters or nothing.

        A damaged line raises one of ``_DAMAGE_ERRORS``.
        """
        if line.startswith(_MESSAGE):
            # The log that fairseq-depthwise train writes.
            self.read_line(json.loads(line)["message"] + "\n")
            return
        json_start = line.find('{"')
        if "{'_name'" in line and line.endswith("}\n"):
            self._read_options(line)
        elif json_start >= 0:
            self._read_metrics(json.loads(line[json_start:]))
        elif match := _PARAMETERS.search(line):
            number = match[1] or match[2]
            self.parameters = int(number.replace(",", ""))
            self.counted = self.updates
        elif _ENDED.search(line):
            self.ended = True
        elif match := _INNER_METRICS.search(line):
            pairs = [pair.split("=") for pair in match[2].rstrip().split(", ")]
            self._read_metrics({"epoch": match[1], **dict(pairs)})
        elif match := _EPOCH_METRICS.search(line):
            split = match[2] or TRAINING[1]
            pairs = [pair.split(" ") for pair in match[3].removeprefix(" | ").split(" | ")]
            self._read_metrics({"epoch": match[1], **{f"{split}_{name}": value for name, value in pairs}})

    def _read_options(self, line: str) -> None:
        """Read the options that a process logs when it starts."""
        self.options = {}
        self.begins = True
        for name, quoted in (*_CHOICE.findall(line), *_OPTION.findall(line)):
            value = quoted.strip("'")
            if value not in _OFF:
                option = "arch" if name == "model" else name
                self.options.setdefault("--" + option.replace("_", "-"), value)

    def _read_metrics(self, metrics: dict[str, Any]) -> None:
        """Read a line of metrics; in lines of epochs and validations their names begin with the split."""
        split = next(name for name in metrics if name.endswith("num_updates")).removesuffix("num_updates")
        epoch = metrics.pop("epoch", None)
        metrics.pop("update", None)
        values = {name.removeprefix(split): value for name, value in metrics.items()}
        update = int(values.pop("num_updates"))
        if self.begins and epoch is not None:
            # A process that continued within an epoch counts on from the seconds that its checkpoint had of it.
            self.epochs = {number: earlier for number, earlier in self.epochs.items() if number < int(epoch)}
        self.add(split.removesuffix("_") or TRAINING[0], update, values)
        if split == "train_" and "train_wall" in values:
            self.epochs[int(epoch)] = Epoch(update, float(values["train_wall"]))

    def add(self, split: str, update: int, values: Mapping[str, Any]) -> None:
        """Add a reading; where a process repeats updates, as after a kill, its readings replace the earlier ones."""
        numbers = _parse_numbers(values)
        if not self.begins and self._is_second_copy(split, update, numbers):
            return
        wall = numbers.get("wall", self.wall)
        # fairseq's clock and updates only go back where another process continued from a checkpoint.
        if self.readings and (self.begins or wall < self.wall or update < self.updates):
            self._forget_from(update)
            wall = numbers.get("wall", 0.0)
        if self.begins:
            self.ended = False
            self.starts.append(Start(self.updates, self.options))
        self.begins = False
        self.wall = wall
        self.updates = update
        self.seconds = self.seconds_before + wall
        self.readings.append(Reading(split, update, self.seconds, numbers))

    def _is_second_copy(self, split: str, update: int, numbers: dict[str, float]) -> bool:
        """Return whether one of the last readings is the same: ``tee`` and ``--log-file`` may write into one file."""
        # The clock is among the numbers, so what a process repeats after a kill is never the same.
        for reading in self.readings[-_LATEST:]:
            if (reading.split, reading.update, reading.values) == (split, update, numbers):
                return True
        return False

    def _forget_from(self, update: int) -> None:
        """Drop the readings from an update on: another process continued before it."""
        self.readings = [reading for reading in self.readings if reading.update < update]
        self.updates, self.seconds_before = 0, 0.0
        if self.readings:
            last = self.readings[-1]
            self.updates, self.seconds_before = last.update, last.seconds
        self.continued = [earlier for earlier in self.continued if earlier < self.updates]
        self.continued.append(self.updates)
        self.counted = min(self.counted, self.updates)
        self.starts = [start for start in self.starts if start.update < self.updates]
        self.epochs = {number: epoch for number, epoch in self.epochs.items() if epoch.update < update}

    # --- what was read ---

    @cached_property
    def series(self) -> dict[str, dict[str, Series]]:
        """The values of each metric, by split and metric."""
        by_split: dict[str, dict[str, Series]] = {}
        for reading in self.readings:
            by_metric = by_split.setdefault(reading.split, {})
            for metric, value in reading.values.items():
                series = by_metric.setdefault(metric, _empty_series())
                series["updates"].append(reading.update)
                series["seconds"].append(reading.seconds)
                series["values"].append(value)
        return by_split

    def get_series(self, metric: str, *, validation: bool = False) -> Series:
        """Return a metric of training, or of the first validation set, which fairseq chooses checkpoints by.

        A metric of training is taken from the split that logs it more often; the series is empty if none does.
        """
        splits = list(TRAINING)
        if validation:
            splits = [split for split in self.series if split not in TRAINING][:1]
        for split in splits:
            by_metric = self.series.get(split, {})
            if metric in by_metric:
                return by_metric[metric]
        return _empty_series()

    @cached_property
    def growth(self) -> list[Growth]:
        """The points of training where the model grew."""
        depths = []
        for reading in self.readings:
            if "depth" in reading.values:
                depths.append(Growth(reading.update, reading.seconds, int(reading.values["depth"])))
        steps = pairwise(depths)
        return [before._replace(depth=after.depth) for before, after in steps if after.depth != before.depth]


def _parse_numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the values that are numbers, or strings of numbers, with nan for those that are not finite."""
    numbers = {}
    for name, value in values.items():
        with suppress(TypeError, ValueError):
            number = float(value)
            # A gap in figures, and null in JSON.
            numbers[name] = number if math.isfinite(number) else math.nan
    return numbers


def _empty_series() -> Series:
    return {"updates": [], "seconds": [], "values": []}


def read_run(path: str) -> Run:
    """Read a log, the log or logs of a folder, or the event files of a folder that has no log.

    Raises:
        UserError: a folder has no log, or logs of several runs; or a log has no numbers.
    """
    folder = Path(path)
    if not folder.is_dir():
        return _read_logs(path, [folder])
    logs = [file for file in folder.glob("*.log") if file.is_file()]
    if folder / "train.log" in logs:
        logs = [folder / "train.log"]
    if not logs and any(folder.rglob("*tfevents*")):
        return _read_events(folder)
    if not logs:
        raise UserError(f"folder {path} has no log (*.log) and no event files; name the log of the run")
    if len(logs) > 1:
        logs = _in_order(path, logs)
    return _read_logs(str(logs[0]) if len(logs) == 1 else path, logs)


def _in_order(folder: str, logs: Sequence[Path]) -> list[Path]:
    """Return the logs of a run that have numbers, from the first process to the last.

    Raises:
        UserError: they do not say that they are of one run, by their --save-dir.
    """
    runs = []
    for log in logs:
        run = Run(str(log))
        run.read_file(log)
        if run.readings:
            runs.append((run.readings[0].update, log.stat().st_mtime, log, run.options.get("--save-dir")))
    if len(runs) > 1 and (len({save_dir for *_, save_dir in runs}) > 1 or runs[0][-1] is None):
        names = ", ".join(sorted(log.name for _, _, log, _ in runs))
        raise UserError(f"folder {folder} has no train.log, and logs of several runs ({names}); name the log of a run")
    return [log for _, _, log, _ in sorted(runs)] or list(logs[:1])


def _read_logs(source: str, logs: Sequence[Path]) -> Run:
    run = Run(source, files=[str(log) for log in logs])
    for log in logs:
        run.read_file(log)
    if not run.readings:
        raise UserError(f"{logs[0]} has no losses; report reads the logs of fairseq-train, all but --log-format none")
    return run


def _read_events(folder: Path) -> Run:
    """Read ``--tensorboard-logdir``, which has a folder for each split."""
    require_extra("tensorboard", "tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    readings: dict[tuple[int, str], dict[str, float]] = {}
    for place in sorted({file.parent for file in folder.rglob("*tfevents*")}):
        events = EventAccumulator(str(place), size_guidance={"scalars": 0}).Reload()
        for metric in events.Tags()["scalars"]:
            for event in events.Scalars(metric):
                values = readings.setdefault((event.step, place.name), {})
                values[metric] = event.value

    def order(reading: tuple[int, str]) -> tuple[int, bool, str]:
        update, split = reading
        is_epoch = split == TRAINING[1]  # logged after the others
        return update, is_epoch, split

    run = Run(str(folder), files=[str(folder)])
    for update, split in sorted(readings, key=order):
        run.add(split, update, readings[update, split])
    return run
