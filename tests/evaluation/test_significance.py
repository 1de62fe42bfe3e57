"""Paired tests: a bootstrap of its own, and differences that are clear."""

from __future__ import annotations

import random

import numpy as np
import pytest
from sacrebleu.metrics import BLEU

from fairseq_depthwise.evaluation.scores import TranslationMetric
from fairseq_depthwise.evaluation.significance import paired_test

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
