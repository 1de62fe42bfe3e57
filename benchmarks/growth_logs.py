"""What fairseq's logs of the benchmark ``growth.py`` say: times, losses, growth steps. Every update has a line."""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from results_training import logged

from fairseq_compat import UserError

_GREW = re.compile(r"grew the encoder from (\d+) to (\d+) layers after (\d+) updates in ([\d.]+) s")


@dataclass(frozen=True)
class Growth:
    """A growth step as the task logs it."""

    before: int
    after: int
    updates: int
    seconds: float


@dataclass(frozen=True)
class Point:
    """A validation: after how many updates and how many seconds of training, and its loss."""

    updates: int
    seconds: float
    loss: float


def growth_steps(log: str) -> list[Growth]:
    return [Growth(int(one[0]), int(one[1]), int(one[2]), float(one[3])) for one in _GREW.findall(log)]


def step_times(log: str, lengths: Mapping[int, int]) -> dict[int, float]:
    """Layers -> seconds of an update with that many, the median.

    Args:
        lengths: layers -> updates, in the order of training.
    """
    updates = _updates(log)
    ends = itertools.accumulate(lengths.values(), initial=0)
    result = {}
    for layers, (begin, end) in zip(lengths, itertools.pairwise(ends), strict=True):
        steps = [updates[number][1] for number in range(begin + 1, end + 1) if number in updates]
        if timed := [seconds for seconds in steps if seconds]:
            result[layers] = statistics.median(timed)
    return result


def loss_curve(log: str) -> list[Point]:
    """The validations, with the seconds of training before them; validating and saving do not count.

    The time of an update is that since the line before, and so it is not known after a validation: that update counts
    as long as the others of its interval for each token.
    """
    updates = _updates(log)
    grown = {step.updates: step.seconds for step in growth_steps(log)}
    points, seconds, before = [], 0.0, 0
    for validated, state in logged(log, "valid", ("loss",)).items():
        inside = [updates[number] for number in sorted(updates) if before < number <= validated]
        timed = [(tokens, taken) for tokens, taken in inside[1:] if taken]
        if not timed:
            raise UserError(f"a training's log has too few updates between {before} and {validated}")
        pace = sum(taken for _, taken in timed) / sum(tokens for tokens, _ in timed)
        seconds += pace * sum(tokens for tokens, _ in inside) + grown.get(before, 0.0)
        points.append(Point(validated, seconds, state["loss"]))
        before = validated
    return points


def at_steady_speed(curve: Sequence[Point], lengths: Mapping[int, int], steps: Mapping[int, float]) -> list[Point]:
    """The curve as it would be if each update took the time of its depth, whatever else the machine was doing.

    Args:
        curve: the validations.
        lengths: layers -> updates, in the order of training.
        steps: layers -> seconds of an update.
    """
    points = []
    for point in curve:
        left, seconds = point.updates, 0.0
        for layers, updates in lengths.items():
            seconds += min(left, updates) * steps[layers]
            left -= min(left, updates)
        points.append(Point(point.updates, seconds, point.loss))
    return points


def time_to_loss(curve: Sequence[Point], loss: float) -> float | None:
    """Seconds of training until the validation loss is first as low, on straight lines between validations.

    None where it never is.
    """
    for place, point in enumerate(curve):
        if point.loss <= loss:
            if place == 0 or point.loss == loss:
                return point.seconds
            before = curve[place - 1]
            way = (before.loss - loss) / (before.loss - point.loss)
            return before.seconds + way * (point.seconds - before.seconds)
    return None


def _updates(log: str) -> dict[int, tuple[float, float | None]]:
    """Update -> its target tokens and its seconds; these are None for the first one that a process did.

    They come from tokens per second, the only time that fairseq logs with more than a digit or two.
    """
    return {
        number: (state["wpb"], state["wpb"] / state["wps"] if state["wps"] else None)
        for number, state in logged(log, "train_inner", ("wpb", "wps")).items()
    }
