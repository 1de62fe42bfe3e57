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

#: Of a training, as its JSON file has it.
Result = Mapping[str, Any]

#: What "hops" counts as answered, in percent of the sentences.
_ANSWERED = 90


class Difference(NamedTuple):
    """A system's scores minus a base's, seed by seed.

    Attributes:
        each: the differences.
        low, high: of Student's interval of 95 % for their mean.
        p: of Student's test that the mean is 0, two-sided.
        digits: that are shown.
    """

    each: list[float]
    low: float
    high: float
    p: float
    digits: int = 2

    @classmethod
    def of(cls, systems: Sequence[float], bases: Sequence[float], digits: int = 2) -> Difference:
        """Compare pairs by Student's test."""
        each = [system - base for system, base in zip(systems, bases, strict=True)]
        test = ttest_1samp(each, 0)
        low, high = test.confidence_interval(0.95)
        # Without any difference there is no variance to divide by.
        p = float(test.pvalue) if any(each) else 1.0
        return cls(each, float(low), float(high), p, digits)

    @property
    def mean(self) -> float:
        return fmean(self.each)

    def text(self, number: float) -> str:
        """Return one of its numbers with its sign and digits."""
        return f"{number:+.{self.digits}f}"

    def __str__(self) -> str:
        return f"{self.text(self.mean)} ({self.text(self.low)} to {self.text(self.high)})"


@dataclass(frozen=True)
class Comparison:
    """A registered comparison of two systems, or of the same two at two depths.

    Attributes:
        system, base: whose difference it is, seed by seed.
        metric: a metric of the plan, a value of :data:`LOSSES`, or "hops" (:func:`hops_answered`).
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
        """Return the comparison of an entry of a plan."""
        minus = entry.get("minus")
        pair = (minus["system"], minus["base"]) if minus else None
        return cls(entry["system"], entry["base"], entry["metric"], entry.get("margin", 0.0), pair)

    @property
    def systems(self) -> list[str]:
        """All systems that it needs."""
        return [self.system, self.base, *(self.minus or ())]

    def verdict(self, difference: Difference) -> str:
        """Return whether the 95 % interval supports "better than the base, or not worse by more than the margin"."""
        low, high = difference.low, difference.high
        # Of a loss the lower is the better.
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
    """Return a number of a final training: a loss at its end, a score, or "hops"."""
    for curve, loss in LOSSES.items():
        if name == loss:
            _, last = result[curve][-1]
            return float(last)
    if name == HOPS:
        return float(hops_answered([result["scores"][test] for test in plan.content["tests"]]))
    return float(result["scores"][name])


def measures(plan: Plan, results: Iterable[Result], name: str) -> list[float]:
    """Return a number of each of several trainings."""
    return [measure(plan, result, name) for result in results]


def hops_answered(accuracies: Sequence[float]) -> int:
    """Return how many steps a model can follow: the most of which it, and all fewer, are answered in 90 % of cases.

    Args:
        accuracies: in percent, of 1 step, of 2 and so on.
    """
    answered = 0
    for accuracy in accuracies:
        if accuracy < _ANSWERED:
            break
        answered += 1
    return answered


def processor_minutes(results: Sequence[Result]) -> list[float]:
    """Return the processor's minutes of the trainings of which they are known.

    Those beside a GPU are not comparable with those without, so only the trainings with most GPUs count. Earlier
    results of trainings that were stopped have the last part's seconds alone.
    """
    # A result says how many GPUs its sweep used.
    gpus = max(result["gpus"] for result in results)
    minutes = []
    for result in results:
        is_whole = "parts" in result or not result["from_update"]
        if result["gpus"] == gpus and result["seconds"] is not None and is_whole:
            minutes.append(result["seconds"] / 60)
    return minutes


def final_results(plan: Plan, system: str) -> dict[int, dict[str, Any]]:
    """Return the results of a system's final trainings by seed, without those that failed."""
    results = {}
    for seed in plan.seeds(system):
        result = plan.result(Run(system, seed))
        if result is not None and "failed" not in result:
            results[seed] = result
    return results


def complete_results(plan: Plan) -> dict[str, dict[int, dict[str, Any]]]:
    """Return the results by seed of the systems of which all seeds have ended, where these are several."""
    complete = {}
    for system in plan.systems:
        results = final_results(plan, system)
        # One seed has no spread, and is not compared.
        if len(results) == len(plan.seeds(system)) > 1:
            complete[system] = results
    return complete


def count_failures(plan: Plan, system: str) -> int | None:
    """Return how many final trainings of a system have failed; None before all have ended.

    If the whole grid has failed, there is nothing to train with, and all have.
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


def difference_of(plan: Plan, comparison: Comparison) -> Difference:
    """Return a comparison's differences, over the seeds that all of its systems have."""
    complete = complete_results(plan)
    seeds = sorted(set.intersection(*(set(complete[system]) for system in comparison.systems)))
    # System -> its number with each seed.
    numbers = {}
    for system in comparison.systems:
        of_seeds = [complete[system][seed] for seed in seeds]
        numbers[system] = np.array(measures(plan, of_seeds, comparison.metric))

    differences = numbers[comparison.system] - numbers[comparison.base]
    if comparison.minus:
        system, base = comparison.minus
        differences = differences - (numbers[system] - numbers[base])
    digits = 3 if comparison.metric in LOSSES.values() else 2
    return Difference.of(differences, np.zeros(len(differences)), digits)
