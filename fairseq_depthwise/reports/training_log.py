"""Read training runs: fairseq's JSON log (``--log-format json``), or event files of TensorBoard."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_compat import UserError
from fairseq_depthwise.options import require_extra

#: The splits of fairseq that are not validation: every ``--log-interval`` updates, and every epoch.
TRAINING = ("train_inner", "train")

_PARAMETERS = re.compile(r"num\. shared model params: ([\d,]{1,30}) |grew the .* in [\d.]+ s; ([\d,]{1,30}) parameters")
#: The last line of a training that was not interrupted.
_ENDED = re.compile(r"done training in [\d.]+ seconds$")
#: In the line with all options: a choice, as 'model': {'_name': 'transformer', and a value, as 'seed': 1 or seed=1.
_CHOICE = re.compile(r"'(\w+)': \{'_name': '(\w+)'")
_OPTION = re.compile(r"\b([a-z]\w*)'?(?:: |=)('[^']*'|\[[^\]]*\]|\([^)]*\)|[^\s,{}()]+)")

#: The values of a metric, and the updates and seconds of training after which each was measured.
Series = dict[str, list[float]]


class Start(NamedTuple):
    """The options of fairseq-train that began, or went on with, a training; its first reading is after ``update``."""

    update: int
    options: dict[str, str]


class Epoch(NamedTuple):
    """Training in an epoch so far, as its last line has it: until ``update``, so many seconds in training steps."""

    update: int
    seconds: float


@dataclass
class Run:
    """A training run, by one process or by several that went on from each other's checkpoints.

    A reading is a split of the data, updates, seconds of training and values. ``seconds`` are without pauses, start-up
    and updates that were repeated; ``parameters`` are as last logged, after ``counted`` updates; ``continued`` has the
    updates after which another process went on. ``starts`` and ``epochs``, by number, are what hours of training are
    computed from (:mod:`fairseq_depthwise.reports.training_hours`), and ``ended`` says whether fairseq-train came to
    its end.
    """

    source: str
    readings: list[tuple[str, int, float, dict[str, float]]] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)
    updates: int = 0
    seconds: float = 0.0
    parameters: int | None = None
    counted: int = 0
    continued: list[int] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    epochs: dict[int, Epoch] = field(default_factory=dict)
    ended: bool = False
    begins: bool = False  # the next reading is another process's
    wall: float = 0.0  # fairseq's clock, which begins anew in every process
    seconds_before: float = 0.0  # of earlier processes

    def add(self, split: str, update: int, values: Mapping[str, Any]) -> None:
        """Add a reading; where a process repeats updates, as after a kill, its readings replace the earlier ones."""
        numbers = {}
        for name, value in values.items():
            with suppress(TypeError, ValueError):
                numbers[name] = float(value) if math.isfinite(float(value)) else math.nan
        wall = numbers.get("wall", self.wall)
        if self.readings and (self.begins or wall < self.wall or update < self.updates):
            self.readings = [one for one in self.readings if one[1] < update]
            self.updates, self.seconds_before = self.readings[-1][1:3] if self.readings else (0, 0.0)
            self.continued = [one for one in self.continued if one < self.updates] + [self.updates]
            self.counted = min(self.counted, self.updates)
            self.starts = [start for start in self.starts if start.update < self.updates]
            self.epochs = {number: epoch for number, epoch in self.epochs.items() if epoch.update < update}
            wall = numbers.get("wall", 0.0)
        if self.begins:
            self.ended = False
            self.starts.append(Start(self.updates, self.options))
        self.wall, self.begins, self.updates, self.seconds = wall, False, update, self.seconds_before + wall
        self.readings.append((split, update, self.seconds, numbers))

    def read_line(self, line: str) -> None:
        """Read a line of a log: options, numbers, parameters or nothing; raise any error for a damaged one."""
        if "{'_name'" in line and line.endswith("}\n"):
            self.options, self.begins = {}, True
            for name, value in (*_CHOICE.findall(line), *_OPTION.findall(line)):
                if value.strip("'") not in ("", "None", "False", "[]", "Namespace"):
                    option = "arch" if name == "model" else name
                    self.options.setdefault("--" + option.replace("_", "-"), value.strip("'"))
        elif (start := line.find('{"')) >= 0:
            state = json.loads(line[start:])
            # Values of epochs and validations have the name of their split before their own.
            split = next(name for name in state if name.endswith("num_updates")).removesuffix("num_updates")
            number = state.get("epoch")
            values = {name.removeprefix(split): value for name, value in state.items()}
            values = {name: value for name, value in values.items() if name not in ("epoch", "update")}
            update = int(values.pop("num_updates"))
            if self.begins and number is not None:
                # A process that went on within an epoch counts on from the seconds that its checkpoint had of it.
                self.epochs = {earlier: epoch for earlier, epoch in self.epochs.items() if earlier < int(number)}
            self.add(split.removesuffix("_") or TRAINING[0], update, values)
            if split == "train_" and "train_wall" in values:
                self.epochs[int(number)] = Epoch(update, float(values["train_wall"]))
        elif match := _PARAMETERS.search(line):
            self.parameters, self.counted = int((match[1] or match[2]).replace(",", "")), self.updates
        elif _ENDED.search(line):
            self.ended = True

    @cached_property
    def series(self) -> dict[str, dict[str, Series]]:
        """The values of each metric of each split; of validation sets fairseq chooses checkpoints by the first."""
        series: dict[str, dict[str, Series]] = {}
        for split, update, seconds, values in self.readings:
            for metric, value in values.items():
                one = series.setdefault(split, {}).setdefault(metric, {"updates": [], "seconds": [], "values": []})
                for column, number in zip(one.values(), (update, seconds, value), strict=True):
                    column.append(number)
        return series

    def of(self, metric: str, *, validation: bool = False) -> Series:
        """Return a metric of training, as often as it was logged, or of the first validation set."""
        splits = [split for split in self.series if split not in TRAINING][:1] if validation else TRAINING
        found = (self.series[split][metric] for split in splits if metric in self.series.get(split, ()))
        return next(found, {"updates": [], "seconds": [], "values": []})

    @cached_property
    def growth(self) -> list[tuple[int, float, int]]:
        """Updates and seconds after which the model grew, as exactly as the log has it, and its depth from there on."""
        depths = [(update, seconds, int(one["depth"])) for _, update, seconds, one in self.readings if "depth" in one]
        return [(update, at, after) for (update, at, before), (*_, after) in pairwise(depths) if after != before]


def read_run(path: str) -> Run:
    """Read a log, the log of a folder, or the event files of a folder that has no log."""
    place, run = Path(path), Run(path)
    if place.is_dir():
        log = place / "train.log"
        logs = [log] if log.is_file() else list(filter(Path.is_file, place.glob("*.log")))
        if not logs and any(place.rglob("*tfevents*")):
            _read_events(place, run)
            return run
        if len(logs) != 1:
            raise UserError(f"folder {path} holds {len(logs)} files *.log and no train.log; name the log of the run")
        run.source = str(logs[0])
    with open(run.source, encoding="utf-8", errors="replace") as file:
        for line in filter(lambda line: len(line) < 100_000, file):
            with suppress(ValueError, TypeError, OverflowError, StopIteration, RecursionError):  # it is damaged
                run.read_line(line)
    if not run.readings:
        raise UserError(f"{run.source} has no losses of a training in the form that report reads, --log-format json")
    return run


def _read_events(folder: Path, run: Run) -> None:
    """Read ``--tensorboard-logdir``, which has a folder for each split."""
    require_extra("tensorboard", "tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    readings: dict[tuple[int, bool, str], dict[str, float]] = {}
    for place in sorted({file.parent for file in folder.rglob("*tfevents*")}):
        events = EventAccumulator(str(place), size_guidance={"scalars": 0}).Reload()
        for metric in events.Tags()["scalars"]:
            for event in events.Scalars(metric):
                readings.setdefault((event.step, place.name == TRAINING[1], place.name), {})[metric] = event.value
    for (update, _, split), values in sorted(readings.items()):
        run.add(split, update, values)
