"""Measurements that take turns, so that changes in a machine's speed affect all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TypeVar

import torch

Result = TypeVar("Result")


def take_turns(works: Mapping[str, Callable[[], Result]], rounds: int, warm_up: int = 1) -> dict[str, list[Result]]:
    """Return the results of each work in each round, after ``warm_up`` rounds that do not count.

    Every round starts with the next work, so that no work has the same position in all rounds.
    """
    names = list(works)
    results: dict[str, list[Result]] = {name: [] for name in names}
    # Rounds below 0 are warm-up.
    for number in range(-warm_up, rounds):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            result = works[name]()
            if number >= 0:
                results[name].append(result)
    return results


def timed(work: Callable[[], object], device: str = "cpu") -> float:
    """Return the seconds that a work takes."""
    # A GPU computes after a call has returned.
    wait: Callable[[], None] = torch.cuda.synchronize if device == "cuda" else lambda: None
    wait()
    begin = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - begin


def ratios(numerators: Sequence[float], denominators: Sequence[float]) -> list[float]:
    """Return the ratios of two works, round by round."""
    return [first / second for first, second in zip(numerators, denominators, strict=True)]


def extent(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the lowest value, the median and the highest value."""
    return min(values), median(values), max(values)
