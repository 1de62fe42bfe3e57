"""The BLEU statistics of each sentence in a few bytes, to compare systems without their text."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence

import numpy as np
from sacrebleu.metrics import BLEU

from fairseq_depthwise.evaluation.scores import TranslationMetric

#: Length of the translation and of the reference, and matching n-grams for n = 1 to 4.
COLUMNS = 6


def count_sentences(metric: TranslationMetric, hypotheses: Sequence[str], reference: Sequence[str]) -> np.ndarray:
    """Return an array of sentences x :data:`COLUMNS` for a BLEU of one reference."""
    scores = [
        metric.scorer.corpus_score(metric.prepare([hypothesis]), [metric.prepare([line])])
        for hypothesis, line in zip(hypotheses, reference, strict=True)
    ]
    return np.array([[score.sys_len, score.ref_len, *score.counts] for score in scores], dtype=np.uint16)


def corpus_bleu(metric: TranslationMetric, counts: np.ndarray) -> float:
    """Return the BLEU of the sentences in an array of :func:`count_sentences`."""
    bleu = metric.scorer
    assert isinstance(bleu, BLEU)
    lengths = counts[:, :1].astype(np.int64)
    totals = np.maximum(lengths - np.arange(4), 0).sum(axis=0)
    sums = counts.sum(axis=0, dtype=np.int64)
    return bleu.compute_bleu(
        sums[2:].tolist(), totals.tolist(), int(sums[0]), int(sums[1]), bleu.smooth_method, bleu.smooth_value
    ).score


def bootstrap_interval(
    metric: TranslationMetric, systems: Sequence[np.ndarray], bases: Sequence[np.ndarray], *, samples: int = 1000
) -> tuple[float, float]:
    """Return the 95 % interval of the mean difference in BLEU, with seeds and sentences drawn with replacement.

    Args:
        systems, bases: an array of :func:`count_sentences` for each seed, of one test set.
    """
    generator, means = np.random.default_rng(12345), []
    for _ in range(samples):
        rows = generator.choice(len(systems[0]), len(systems[0]))
        seeds = generator.choice(len(systems), len(systems))
        pairs = [(systems[seed][rows], bases[seed][rows]) for seed in seeds]
        means.append(np.mean([corpus_bleu(metric, system) - corpus_bleu(metric, base) for system, base in pairs]))
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def to_text(counts: np.ndarray) -> str:
    """Return an array of :func:`count_sentences` as compressed text."""
    return base64.b64encode(zlib.compress(np.ascontiguousarray(counts.T, dtype="<u2").tobytes(), 9)).decode()


def from_text(text: str) -> np.ndarray:
    """Return the array that :func:`to_text` was given."""
    numbers = np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype="<u2")
    return numbers.reshape(COLUMNS, -1).T
