"""Paired tests: a bootstrap of its own; systems from the counts of their sentences as from their text."""

from __future__ import annotations

import random

import numpy as np
import pytest
from sacrebleu.metrics import BLEU

from fairseq_depthwise.evaluation.scores import TranslationMetric
from fairseq_depthwise.evaluation.significance import (
    bootstrap_interval,
    corpus_bleu,
    count_sentences,
    from_text,
    paired_test,
    to_text,
)

WORDS = [f"w{number}" for number in range(30)]


def corpus(errors: float, seed: int = 1, sentences: int = 60) -> tuple[list[str], list[str]]:
    """A reference, and a translation in which a share of the words is wrong."""
    chance, noise = random.Random(0), random.Random(seed)
    reference = [[chance.choice(WORDS) for _ in range(12)] for _ in range(sentences)]
    translation = [[word if noise.random() >= errors else noise.choice(WORDS) for word in line] for line in reference]
    return [" ".join(line) for line in reference], [" ".join(line) for line in translation]


REFERENCE, GOOD = corpus(0.1)
ALIKE = corpus(0.1, seed=2)[1]


def test_the_same_as_a_bootstrap_of_its_own() -> None:
    """Koehn's test, read from the scores of resampled corpora: the share of shifted differences above the observed."""
    metric = BLEU(tokenize="none", smooth_method="none", force=True)

    def bleu(lines: list[str], chosen: np.ndarray) -> float:
        return metric.corpus_score([lines[i] for i in chosen], [[REFERENCE[i] for i in chosen]]).score

    everything = np.arange(len(REFERENCE))
    observed = abs(bleu(GOOD, everything) - bleu(ALIKE, everything))
    resamples = np.random.default_rng(5).choice(len(REFERENCE), size=(40, len(REFERENCE)), replace=True)
    differences = np.array([abs(bleu(GOOD, one) - bleu(ALIKE, one)) for one in resamples])
    above = int((differences - differences.mean() > observed).sum())
    p_value = paired_test(GOOD, ALIKE, [REFERENCE], TranslationMetric("tokenized"), samples=40, seed=5)
    assert p_value == pytest.approx((above + 1) / 41)


def _texts(sentences: int = 80) -> tuple[list[str], list[str], list[str]]:
    """Return a reference and two systems with errors in it, one with more; some sentences are short or empty."""
    draw = random.Random(3)
    words = [f"word{number}" for number in range(40)]
    reference = [" ".join(draw.choices(words, k=draw.randint(1, 14))) for _ in range(sentences)]

    def with_errors(rate: float) -> list[str]:
        return [" ".join(word for word in line.split() if draw.random() > rate) for line in reference]

    return reference, with_errors(0.10), with_errors(0.13)


@pytest.mark.parametrize("name", ["sacrebleu", "tokenized-lc"])
def test_the_score_is_sacrebleus(name: str) -> None:
    metric = TranslationMetric(name)
    reference, *systems = _texts()
    for system in systems:
        count = from_text(to_text(count_sentences(metric, system, reference)))
        assert corpus_bleu(metric, count) == pytest.approx(metric.score(system, [reference]).score, abs=1e-9)


def test_the_interval_holds_the_differences_of_seeds_and_sentences() -> None:
    metric = TranslationMetric("sacrebleu")
    reference, better, worse = _texts()
    good, bad = (count_sentences(metric, system, reference) for system in (better, worse))
    difference = corpus_bleu(metric, good) - corpus_bleu(metric, bad)
    low, high = bootstrap_interval(metric, [good] * 3, [bad] * 3, samples=200)
    assert low < difference < high
    # Seeds that differ make it wider than sentences alone do, and swapped systems turn it around.
    perfect = count_sentences(metric, reference, reference)
    low_of_one, high_of_one = bootstrap_interval(metric, [perfect] * 3, [bad] * 3, samples=200)
    wide = bootstrap_interval(metric, [perfect, bad, perfect], [bad, perfect, bad], samples=200)
    assert wide[1] - wide[0] > 2 * (high_of_one - low_of_one)
    assert bootstrap_interval(metric, [bad] * 3, [good] * 3, samples=200) == pytest.approx((-high, -low))
    assert bootstrap_interval(metric, [good], [good], samples=9) == (0, 0)
