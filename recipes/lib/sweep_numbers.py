"""Numbers of a sweep's record: what each system scored with each seed, and how systems differ."""

from __future__ import annotations

import functools
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sweep_plan import Record

from fairseq_depthwise.evaluation.scores import TranslationMetric
from fairseq_depthwise.evaluation.sentence_counts import from_text, paired_bootstrap, resampled_differences
from recipes import RECIPES

#: What may be lost where something is said to be as good, in points of the score.
MARGIN = 0.5


def seeds_of(record: Record, system: str) -> dict[int, dict[str, Any]]:
    """Return seed -> what came of it, for the seeds of a system that were trained and scored."""
    runs: dict[str, dict[str, Any]] = record.content["runs"]
    named = {name: re.fullmatch(rf"{re.escape(system)}(?:-seed(\d+))?", name) for name in runs}
    seeds = {int(match[1] or 1): runs[name] for name, match in named.items() if match and "metrics" in runs[name]}
    return dict(sorted(seeds.items()))


def score_of(record: Record, result: dict[str, Any]) -> float:
    """Return the score of a training in the first metric of its recipe."""
    score: float = result["metrics"][RECIPES[record.content["recipe"]].metrics[0]]["score"]
    return score


@dataclass(frozen=True)
class Difference:
    """How a system differs from a baseline, one number for each seed that both were trained with.

    Attributes:
        scores: differences in the first metric of the recipe.
        chances: sacreBLEU's paired bootstrap over the test sentences: the probability, of one direction.
        losses: the share of the same samples of test sentences in which more than MARGIN is lost.
    """

    scores: tuple[float, ...]
    chances: tuple[float, ...]
    losses: tuple[float, ...]


def difference(record: Record, system: str, baseline: str) -> Difference | None:
    """Return how two systems differ; None where no seed has both."""
    ours, theirs = seeds_of(record, system), seeds_of(record, baseline)
    if not (both := [seed for seed in ours if seed in theirs]):
        return None
    name = RECIPES[record.content["recipe"]].metrics[0]
    pairs = [(ours[seed], theirs[seed]) for seed in both]
    counts = [tuple(result["metrics"][name]["sentences"] for result in (their, our)) for our, their in pairs]
    scores = tuple(score_of(record, our) - score_of(record, their) for our, their in pairs)
    chances, losses = zip(*(_bootstrap(name, *sentences) for sentences in counts), strict=True)
    return Difference(scores, chances, losses)


@functools.cache  # several tables ask for the same
def _bootstrap(name: str, theirs: str, ours: str) -> tuple[float, float]:
    """Return the p value, and how often more than MARGIN is lost."""
    metric, base, system = TranslationMetric(name), from_text(theirs), from_text(ours)
    sampled = resampled_differences(metric, base, system)
    return paired_bootstrap(metric, base, system, sampled), float((sampled < -MARGIN).mean())


def spread(values: Sequence[float], digits: int, sign: str = "") -> str:
    """Return the mean and, of several values, their standard deviation."""
    mean = f"{statistics.fmean(values):{sign},.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {statistics.stdev(values):,.{digits}f}"


def chances(found: Difference) -> str:
    """Return the probability of each seed."""
    return ", ".join(f"{chance:.3f}" for chance in found.chances)
