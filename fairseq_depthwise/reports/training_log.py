"""Read training runs: fairseq's JSON log (``--log-format json``), or event files of TensorBoard."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from fairseq_compat import UserError

#: The splits of fairseq that are not validation: every ``--log-interval`` updates, and every epoch.
TRAINING = ("train_inner", "train")

#: From here on a value counts as not finite: nothing can be drawn to its scale.
_LARGEST = 1e300

_PARAMETERS = re.compile(r"num\. shared model params: ([\d,]{1,30}) |grew the .* in [\d.]+ s; ([\d,]{1,30}) parameters")
#: In the line with all options: a choice, as 'model': {'_name': 'transformer', and a value, as 'seed': 1 or seed=1.
_CHOICE = re.compile(r"'(\w+)': \{'_name': '(\w+)'")
_OPTION = re.compile(r"\b([a-z]\w*)'?(?:: |=)('[^']*'|\[[^\]]*\]|\([^)]*\)|[^\s,{}()]+)")

#: The values of a metric, and the updates and seconds of training after which each was measured.
Series = dict[str, list[float]]
_NOTHING: Series = {"updates": [], "seconds": [], "values": []}


@dataclass
class Run:
    """A training run, by one process or by several that went on from each other's checkpoints.

    A reading is a split of the data, updates, seconds of training and values. ``parameters`` are as last logged, after
    ``counted`` updates; ``continued`` has the updates after which another process went on.
    """

    source: str
    readings: list[tuple[str, int, float, dict[str, float]]] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)
    parameters: int | None = None
    counted: int = 0
    continued: list[int] = field(default_factory=list)
    begins: bool = False  # the next reading is another process's
    wall: float = 0.0  # fairseq's clock, which begins anew in every process
    seconds_before: float = 0.0  # of earlier processes

    def add(self, split: str, update: int, values: Mapping[str, Any]) -> None:
        """Add a reading; where a process repeats updates, as after a kill, its readings replace the earlier ones."""
        numbers = {}
        for name, value in values.items():
            with suppress(TypeError, ValueError):
                numbers[name] = float(value) if abs(float(value)) < _LARGEST else math.nan
        wall = numbers.get("wall", self.wall)
        if self.readings and (self.begins or wall < self.wall or update < self.updates):
            while self.readings and self.updates >= update:
                self.readings.pop()
            self.continued = [one for one in self.continued if one < self.updates] + [self.updates]
            self.counted = min(self.counted, self.updates)
            self.seconds_before, wall = self.seconds, numbers.get("wall", 0.0)
        self.wall, self.begins = wall, False
        self.readings.append((split, update, self.seconds_before + wall, numbers))

    @property
    def updates(self) -> int:
        """The number of updates."""
        return self.readings[-1][1] if self.readings else 0

    @property
    def seconds(self) -> float:
        """The seconds of training that count: without pauses, start-up and updates that were repeated."""
        return self.readings[-1][2] if self.readings else 0.0

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
        return next((self.series[split][metric] for split in splits if metric in self.series.get(split, ())), _NOTHING)

    @cached_property
    def growth(self) -> list[tuple[int, float, int]]:
        """Updates and seconds after which the model grew, as exactly as the log has it, and its depth from there on."""
        depths = [(update, seconds, int(one["depth"])) for _, update, seconds, one in self.readings if "depth" in one]
        return [(update, at, after) for (update, at, before), (*_, after) in pairwise(depths) if after != before]


def read_run(path: str) -> Run:
    """Read a log, the log of a folder, or the event files of a folder that has no log."""
    place = Path(path)
    if place.is_dir():
        logs = sorted(place.glob("*.log"))
        logs = [one for one in logs if one.name == "train.log"] or logs
        if not logs and any(place.rglob("*tfevents*")):
            return _read_events(place)
        if len(logs) != 1:
            raise UserError(f"folder {path} holds {len(logs)} files *.log and no train.log; name the log of the run")
        (place,) = logs
    with open(place, encoding="utf-8", errors="replace") as file:
        run = parse_log(file, str(place))
    if not run.readings:
        raise UserError(f"{place} has no losses of a training in the form that report reads, --log-format json")
    return run


def parse_log(lines: Iterable[str], source: str) -> Run:
    """Return the run of which the lines of a log tell; damaged lines are skipped."""
    run = Run(source)
    for line in lines:
        with suppress(ValueError, TypeError, OverflowError, StopIteration, RecursionError):
            _read_line(run, line)
    return run


def _read_line(run: Run, line: str) -> None:
    if "{'_name'" in line and line.endswith("}\n"):
        run.options, run.begins = {}, True
        for name, value in (*_CHOICE.findall(line), *_OPTION.findall(line)):
            if value.strip("'") not in ("", "None", "False", "[]", "Namespace"):
                option = "arch" if name == "model" else name
                run.options.setdefault("--" + option.replace("_", "-"), value.strip("'"))
    elif (start := line.find('{"')) >= 0:
        state = json.loads(line[start:])
        # Values of epochs and validations have the name of their split before their own.
        split = next(name for name in state if name.endswith("num_updates")).removesuffix("num_updates")
        values = {name.removeprefix(split): value for name, value in state.items() if name not in ("epoch", "update")}
        run.add(split.removesuffix("_") or TRAINING[0], int(values.pop("num_updates")), values)
    elif match := _PARAMETERS.search(line):
        run.parameters, run.counted = int((match[1] or match[2]).replace(",", "")), run.updates


def _read_events(folder: Path) -> Run:
    """Read ``--tensorboard-logdir``, which has a folder for each split."""
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        advice = "pip install 'fairseq-depthwise[tensorboard]'"
        raise UserError(f"{folder} holds event files, which are read with tensorboard; {advice}") from None
    readings: dict[tuple[int, bool, str], dict[str, float]] = {}
    for place in sorted({file.parent for file in folder.rglob("*tfevents*")}):
        events = EventAccumulator(str(place), size_guidance={"scalars": 0}).Reload()
        for metric in events.Tags()["scalars"]:
            for event in events.Scalars(metric):
                readings.setdefault((event.step, place.name == TRAINING[1], place.name), {})[metric] = event.value
    run = Run(str(folder))
    for (update, _, split), values in sorted(readings.items()):
        run.add(split, update, values)
    return run
