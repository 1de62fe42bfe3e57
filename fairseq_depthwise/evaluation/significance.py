"""Significance of a difference between systems: paired tests of sacreBLEU, intervals, and the variation over seeds.

Systems can be compared without their text, from the statistics of each sentence in a few bytes.
"""

from __future__ import annotations

import base64
import math
import os
import statistics
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from sacrebleu.significance import PairedTest

from fairseq_depthwise.evaluation.scores import Score, TranslationMetric, require_lines

#: Names of the tests here and in sacreBLEU.
TESTS = {"bootstrap": "bs", "approximate-randomization": "ar"}

#: sacreBLEU's default numbers of resamples or trials.
DEFAULT_SAMPLES = {"bootstrap": 1000, "approximate-randomization": 10000}

#: The seed of resamples, as sacreBLEU's.
DEFAULT_SEED = 12345

#: Length of the translation and of the reference, and matching n-grams for n = 1 to 4.
COLUMNS = 6


def spread(scores: Sequence[float]) -> dict[str, Any]:
    """Return a system's scores over seeds and their variation; the standard deviation (n - 1) of one score is None."""
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
    seed: int = DEFAULT_SEED,
) -> float:
    """Return sacreBLEU's p value of the difference between two systems, by a key of :data:`TESTS`.

    The bootstrap is one-sided (its differences are centered after their absolute values are taken): a two-sided p value
    is about twice as large. Approximate randomization is two-sided. sacreBLEU treats the seed 0 as no seed.

    Metrics of answers, such as accuracy, have the exact two-sided sign test instead: many resamples differ exactly as
    much as the systems do, and sacreBLEU counts only larger differences.

    Raises:
        UserError: a text is given in place of its lines, or numbers of lines differ.
    """
    for hypotheses in (base, system):
        require_lines(hypotheses, references)
    if metric.scores_answers:
        base_answers = _find_right_answers(metric, base, references)
        return sign_test(base_answers, _find_right_answers(metric, system, references))
    os.environ["SACREBLEU_SEED"] = str(seed)  # PairedTest reads it
    systems: list[tuple[str, Sequence[str]]] = [("base", metric.prepare(base)), ("system", metric.prepare(system))]
    prepared = [metric.prepare(reference) for reference in references]
    columns: Any = PairedTest(systems, {"metric": metric.scorer}, prepared, TESTS[test], samples)()[1]

    # One column has the systems' names; the other, named after the metric, has the results of base and system.
    (name,) = columns.keys() - {"System"}
    base_result, system_result = columns[name]
    # sacreBLEU counts resamples with a larger difference: identical systems have none, and would get a small p value.
    return 1.0 if base_result.score == system_result.score else float(system_result.p_value)


def _find_right_answers(
    metric: TranslationMetric, sentences: Sequence[str], references: Sequence[Sequence[str]]
) -> list[bool]:
    """Return, for each sentence, whether a metric of answers scores it as right."""
    scorer: Any = metric.scorer
    prepared = [metric.prepare(reference) for reference in references]
    right = []
    for sentence, *answers in zip(metric.prepare(sentences), *prepared, strict=True):
        right.append(scorer.sentence_score(sentence, answers).score > 0)
    return right


def sign_test(base: Sequence[bool], system: Sequence[bool]) -> float:
    """Return the two-sided p value of the exact sign test over the sentences that only one system has correct."""
    better = sum(after and not before for before, after in zip(base, system, strict=True))
    worse = sum(before and not after for before, after in zip(base, system, strict=True))
    differing = better + worse
    # The tail of the binomial distribution up to the rarer outcome, doubled for both sides.
    tail = sum(math.comb(differing, count) for count in range(min(better, worse) + 1))
    return min(1.0, 2 * tail / 2**differing)


def count_sentences(metric: TranslationMetric, hypotheses: Sequence[str], reference: Sequence[str]) -> np.ndarray:
    """Return an array of sentences x :data:`COLUMNS` for a BLEU of one reference."""
    bleu: Any = metric.scorer
    rows = []
    for hypothesis, line in zip(hypotheses, reference, strict=True):
        # Only the counts of this one-sentence corpus are used, not its BLEU.
        score = bleu.corpus_score(metric.prepare([hypothesis]), [metric.prepare([line])])
        rows.append([score.sys_len, score.ref_len, *score.counts])
    # 16 bits are enough: no sentence has 65,536 words.
    return np.array(rows, dtype=np.uint16)


def corpus_bleu(metric: TranslationMetric, counts: np.ndarray) -> float:
    """Return the BLEU of the sentences in an array of :func:`count_sentences`."""
    bleu: Any = metric.scorer
    hypothesis_length, reference_length, *matches = counts.sum(axis=0, dtype=np.int64).tolist()
    # A sentence of n words has n - k n-grams of k + 1 words.
    lengths = counts[:, :1].astype(np.int64)
    totals = np.maximum(lengths - np.arange(4), 0).sum(axis=0).tolist()
    score = bleu.compute_bleu(
        matches, totals, hypothesis_length, reference_length, bleu.smooth_method, bleu.smooth_value
    )
    return float(score.score)


def bootstrap_interval(
    metric: TranslationMetric, systems: Sequence[np.ndarray], bases: Sequence[np.ndarray], *, samples: int = 1000
) -> tuple[float, float]:
    """Return the 95 % interval of the mean difference in BLEU, with seeds and sentences drawn with replacement.

    Args:
        systems: an array of :func:`count_sentences` for each seed of the system, of one test set.
        bases: the same for the base.
    """
    return _interval_of_difference(partial(corpus_bleu, metric), systems, bases, samples, DEFAULT_SEED)


def score_interval(metric: TranslationMetric, score: Score, *, samples: int = 1000) -> tuple[float, float]:
    """Return the 95 % interval of a score, with sentences drawn with replacement."""
    table = np.array(score.statistics, dtype=np.float64)
    generator = np.random.default_rng(DEFAULT_SEED)
    scores = []
    # One sample after the other: all of them at once, as in sacreBLEU, take gigabytes for a large text.
    for _ in range(samples):
        rows = generator.choice(len(table), len(table))
        scores.append(_score_of(metric, table[rows]))
    return _central_95_percent(scores)


def difference_interval(
    metric: TranslationMetric, systems: Sequence[Score], bases: Sequence[Score], *, samples: int, seed: int
) -> tuple[float, float]:
    """Return the 95 % interval of the mean difference of a system's seeds and the base's, in any metric."""
    system_tables = [np.array(score.statistics, dtype=np.float64) for score in systems]
    base_tables = [np.array(score.statistics, dtype=np.float64) for score in bases]
    return _interval_of_difference(partial(_score_of, metric), system_tables, base_tables, samples, seed)


def _interval_of_difference(
    score_of: Callable[[np.ndarray], float],
    systems: Sequence[np.ndarray],
    bases: Sequence[np.ndarray],
    samples: int,
    seed: int,
) -> tuple[float, float]:
    generator = np.random.default_rng(seed)
    means = []
    for _ in range(samples):
        # System and base have the same sample of sentences and of seeds.
        rows = generator.choice(len(systems[0]), len(systems[0]))
        numbers = generator.choice(len(systems), len(systems))
        differences = []
        for number in numbers:
            differences.append(score_of(systems[number][rows]) - score_of(bases[number][rows]))
        means.append(statistics.fmean(differences))
    return _central_95_percent(means)


def _score_of(metric: TranslationMetric, table: np.ndarray) -> float:
    """Return the score of sentences from sacreBLEU's statistics of each."""
    return float(metric.scorer._compute_score_from_stats(table.sum(axis=0).tolist()).score)


def _central_95_percent(values: Sequence[float]) -> tuple[float, float]:
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values corrected for their number (Holm, 1979), so that a level holds for all of them together."""
    # The smallest p value is multiplied by the number of tests, the next by one less, and so on; none may become
    # smaller than one before.
    corrected = [0.0] * len(p_values)
    largest = 0.0
    ascending = sorted(range(len(p_values)), key=p_values.__getitem__)
    for rank, index in enumerate(ascending):
        scaled = (len(p_values) - rank) * p_values[index]
        largest = max(largest, min(1.0, scaled))
        corrected[index] = largest
    return corrected


def to_text(counts: np.ndarray) -> str:
    """Return an array of :func:`count_sentences` as compressed text."""
    # By column, because similar numbers side by side compress better.
    return base64.b64encode(zlib.compress(np.ascontiguousarray(counts.T, dtype="<u2").tobytes(), 9)).decode()


def from_text(text: str) -> np.ndarray:
    """Return the array of :func:`count_sentences` that :func:`to_text` compressed."""
    numbers = np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype="<u2")
    return numbers.reshape(COLUMNS, -1).T
