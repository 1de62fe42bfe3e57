"""Significance of a difference between systems: paired tests of sacreBLEU, and the variation over seeds."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from typing import Any

from sacrebleu.significance import PairedTest, Result

from fairseq_depthwise.evaluation.scores import TranslationMetric

#: Names of the tests here and in sacreBLEU.
TESTS = {"bootstrap": "bs", "approximate-randomization": "ar"}

#: sacreBLEU's default numbers of resamples or trials.
DEFAULT_SAMPLES = {"bootstrap": 1000, "approximate-randomization": 10000}


def spread(scores: Sequence[float]) -> dict[str, Any]:
    """Return a system's scores of several seeds and their variation; the deviation (n - 1) of one score is None."""
    return {
        "scores": scores,
        "mean": statistics.fmean(scores),
        "standard_deviation": statistics.stdev(scores) if len(scores) > 1 else None,
        "lowest": min(scores),
        "highest": max(scores),
    }


def paired_test(
    base: Sequence[str],
    system: Sequence[str],
    references: Sequence[Sequence[str]],
    metric: TranslationMetric,
    *,
    test: str = "bootstrap",
    samples: int = 1000,
    seed: int = 12345,
) -> float:
    """Return sacreBLEU's p value of the difference between two systems, by a key of :data:`TESTS`.

    The bootstrap is one-sided (its differences are centered after their absolute values are taken): a two-sided p value
    is about twice as large. Approximate randomization is two-sided. sacreBLEU takes the seed 0 for none.
    """
    systems: list[tuple[str, Sequence[str]]] = [("base", metric.prepare(base)), ("system", metric.prepare(system))]
    prepared = [metric.prepare(reference) for reference in references]
    os.environ["SACREBLEU_SEED"] = str(seed)  # where sacreBLEU reads it
    _, results = PairedTest(systems, {"metric": metric.scorer}, prepared, TESTS[test], samples)()
    # Results also has the systems' names; the other list, under the metric's full name, is of base and system.
    ((of_base, of_system),) = (values for name, values in results.items() if name != "System")
    assert isinstance(of_base, Result)
    assert isinstance(of_system, Result)
    assert of_system.p_value is not None
    # Every difference is at least zero. sacreBLEU counts those above, of which equal systems have none.
    return 1.0 if of_base.score == of_system.score else of_system.p_value
