"""Results of a plan's trainings: numbers of a training, differences of systems, registered comparisons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import records  # noqa: F401  # puts the folders of the recipes on the path
from plans import HOPS, LOSSES, Plan, Run
from scipy.stats import ttest_1samp

#: The result of a training: the contents of its JSON file.
Result = Mapping[str, Any]

#: Accuracy in percent from which "hops" counts a number of steps as answered.
_ANSWERED = 90


class Difference(NamedTuple):
    """A system's scores minus a base's, seed by seed.

    Attributes:
        each: the difference with each seed.
        low, high: ends of Student's 95 % interval for the mean.
        p: p value of Student's two-sided test that the mean is 0.
        digits: number of decimals shown.
    """

    each: list[float]
    low: float
    high: float
    p: float
    digits: int = 2

    @classmethod
    def of(cls, systems: Sequence[float], bases: Sequence[float], digits: int = 2) -> Difference:
        """Compare paired scores by Student's t test."""
        each = [system - base for system, base in zip(systems, bases, strict=True)]
        test = ttest_1samp(each, 0)
        low, high = test.confidence_interval(0.95)
        # If all differences are 0, the test divides by a variance of 0.
        p = float(test.pvalue) if any(each) else 1.0
        return cls(each, float(low), float(high), p, digits)

    @property
    def mean(self) -> float:
        return fmean(self.each)

    def text(self, number: float) -> str:
        """Format a number with its sign and ``digits`` decimals."""
        return f"{number:+.{self.digits}f}"

    def __str__(self) -> str:
        return f"{self.text(self.mean)} ({self.text(self.low)} to {self.text(self.high)})"


@dataclass(frozen=True)
class Comparison:
    """A registered comparison of two systems, or of the same two at two depths.

    Attributes:
        system, base: the systems that are compared, seed by seed: system minus base.
        metric: a metric of the plan, a value of :data:`LOSSES`, or "hops" (:func:`count_answered_hops`).
        margin: how much worse than the base the system may be.
        minus: a system and a base whose difference is subtracted.
    """

    system: str
    base: str
    metric: str
    margin: float = 0.0
    minus: tuple[str, str] | None = None

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Comparison:
        """Build the comparison from an entry of a plan."""
        minus = entry.get("minus")
        pair = (minus["system"], minus["base"]) if minus else None
        return cls(entry["system"], entry["base"], entry["metric"], entry.get("margin", 0.0), pair)

    @property
    def systems(self) -> list[str]:
        """All systems that the comparison needs."""
        return [self.system, self.base, *(self.minus or ())]

    def verdict(self, difference: Difference) -> str:
        """Return whether the 95 % interval supports "better than the base, or not worse by more than the margin"."""
        low, high = difference.low, difference.high
        # Lower losses are better.
        if self.metric in LOSSES.values():
            low, high = -high, -low
        if low > -self.margin:
            return "supported"
        if high < -self.margin:
            return "not reproduced"
        return "undecided"

    def __str__(self) -> str:
        text = f"`{self.system}` against `{self.base}`"
        if self.minus:
            text += f" minus `{self.minus[0]}` against `{self.minus[1]}`"
        if self.margin:
            text += f", not worse by more than {self.margin:g}"
        return text


def measure(plan: Plan, result: Result, name: str) -> float:
    """Return a metric of a final training: a loss at its end, a score, or "hops"."""
    for curve, loss in LOSSES.items():
        if name == loss:
            _, last = result[curve][-1]
            return float(last)
    if name == HOPS:
        return float(count_answered_hops([result["scores"][test] for test in plan.content["tests"]]))
    return float(result["scores"][name])


def measures(plan: Plan, results: Iterable[Result], name: str) -> list[float]:
    """Return a metric of each of several trainings."""
    return [measure(plan, result, name) for result in results]


def count_answered_hops(accuracies: Sequence[float]) -> int:
    """Return the number of steps a model can follow: the largest up to which every number is answered in 90 % of cases.

    Args:
        accuracies: accuracy in percent with 1 step, with 2 steps and so on.
    """
    answered = 0
    for accuracy in accuracies:
        if accuracy < _ANSWERED:
            break
        answered += 1
    return answered


def collect_processor_minutes(results: Sequence[Result]) -> list[float]:
    """Return the processor minutes of those trainings for which they are known and comparable.

    Times with and without a GPU are not comparable, so only the trainings with the most GPUs count. Earlier results of
    trainings that were interrupted have the seconds of the last part only, and are left out.
    """
    gpus = max(result["gpus"] for result in results)
    minutes = []
    for result in results:
        is_whole = "parts" in result or not result["from_update"]
        if result["gpus"] == gpus and result["seconds"] is not None and is_whole:
            minutes.append(result["seconds"] / 60)
    return minutes


def final_results(plan: Plan, system: str) -> dict[int, dict[str, Any]]:
    """Return seed -> result of a system's final training, without those that failed."""
    results = {}
    for seed in plan.seeds(system):
        result = plan.result(Run(system, seed))
        if result is not None and "failed" not in result:
            results[seed] = result
    return results


def complete_results(plan: Plan) -> dict[str, dict[int, dict[str, Any]]]:
    """Return system -> seed -> result, for the systems with several seeds, all of which have ended."""
    complete = {}
    for system in plan.systems:
        results = final_results(plan, system)
        # A single seed has no spread, so it is not compared.
        if len(results) == len(plan.seeds(system)) > 1:
            complete[system] = results
    return complete


def count_failures(plan: Plan, system: str) -> int | None:
    """Return how many final trainings of a system have failed; None before all have ended.

    If the whole grid has failed, there are no values for final trainings, and all of them count as failed.
    """
    grid = plan.grid(plan.tuned_as(system))
    grid_has_ended = all(plan.result(run) is not None for run in grid)
    if plan.best(system) is None and grid_has_ended:
        return len(plan.seeds(system))
    failures = 0
    for seed in plan.seeds(system):
        result = plan.result(Run(system, seed))
        if result is None:
            return None
        failures += "failed" in result
    return failures


def compute_difference(plan: Plan, comparison: Comparison) -> Difference:
    """Compute the difference of a comparison, over the seeds that all of its systems have."""
    complete = complete_results(plan)
    seeds = sorted(set.intersection(*(set(complete[system]) for system in comparison.systems)))
    numbers = {}  # system -> its metric with each seed
    for system in comparison.systems:
        results = [complete[system][seed] for seed in seeds]
        # One entry per seed, in the same order for all systems: differences are taken within seeds.
        numbers[system] = np.array(measures(plan, results, comparison.metric))

    differences = numbers[comparison.system] - numbers[comparison.base]
    if comparison.minus:
        system, base = comparison.minus
        differences = differences - (numbers[system] - numbers[base])
    digits = 3 if comparison.metric in LOSSES.values() else 2
    return Difference.of(differences, np.zeros(len(differences)), digits)
