"""Systems are compared from the counts of their sentences as sacreBLEU compares them from their text."""

from __future__ import annotations

import random

import numpy as np
import pytest

from fairseq_depthwise.evaluation.scores import TranslationMetric
from fairseq_depthwise.evaluation.sentence_counts import (
    corpus_bleu,
    count_sentences,
    from_text,
    paired_bootstrap,
    resampled_differences,
    to_text,
)
from fairseq_depthwise.evaluation.significance import paired_test


def _texts(sentences: int = 80) -> tuple[list[str], list[str], list[str]]:
    """Return a reference and two systems with errors in it, one with more; some sentences are short or empty."""
    draw = random.Random(3)
    words = [f"word{number}" for number in range(40)]
    reference = [" ".join(draw.choices(words, k=draw.randint(1, 14))) for _ in range(sentences)]

    def with_errors(rate: float) -> list[str]:
        return [" ".join(word for word in line.split() if draw.random() > rate) for line in reference]

    return reference, with_errors(0.10), with_errors(0.13)


@pytest.mark.parametrize("name", ["sacrebleu", "tokenized-lc"])
def test_score_and_p_value_are_sacrebleus(name: str) -> None:
    metric = TranslationMetric(name)
    reference, better, worse = _texts()
    counts = [from_text(to_text(count_sentences(metric, system, reference))) for system in (better, worse)]
    for system, count in zip((better, worse), counts, strict=True):
        assert corpus_bleu(metric, count) == pytest.approx(metric.score(system, [reference]).score, abs=1e-9)
    expected = paired_test(worse, better, [reference], metric, samples=200, seed=5)
    assert 0.01 < expected < 0.9
    sampled = resampled_differences(metric, counts[1], counts[0], samples=200, seed=5)
    assert paired_bootstrap(metric, counts[1], counts[0], sampled) == pytest.approx(expected, abs=1e-12)
    assert 0 < (sampled > 0).mean() < 1
    assert np.array_equal(resampled_differences(metric, counts[0], counts[1], samples=200, seed=5), -sampled)


def test_equal_systems_do_not_differ() -> None:
    metric = TranslationMetric("sacrebleu")
    reference, system, _ = _texts()
    counts = count_sentences(metric, system, reference)
    assert paired_bootstrap(metric, counts, counts, resampled_differences(metric, counts, counts, samples=9)) == 1.0


def test_text_is_a_few_bytes_a_sentence() -> None:
    counts = np.tile(np.array([[300, 290, 200, 150, 100, 50]], dtype=np.uint16), (1000, 1))
    text = to_text(counts)
    assert len(text) < 200
    assert np.array_equal(from_text(text), counts)
