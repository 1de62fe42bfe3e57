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


def resampled_differences(
    metric: TranslationMetric, base: np.ndarray, system: np.ndarray, *, samples: int = 1000, seed: int = 12345
) -> np.ndarray:
    """Return the difference of two systems on test sets that are drawn from the same one, with replacement."""
    chosen = np.random.default_rng(seed).choice(len(base), size=(samples, len(base)), replace=True)
    return np.array([corpus_bleu(metric, system[rows]) - corpus_bleu(metric, base[rows]) for rows in chosen])


def paired_bootstrap(metric: TranslationMetric, base: np.ndarray, system: np.ndarray, sampled: np.ndarray) -> float:
    """Return the p value of sacreBLEU's paired bootstrap (Koehn, 2004) for two systems on the same test set.

    Args:
        sampled: their :func:`resampled_differences`.
    """
    difference = abs(corpus_bleu(metric, system) - corpus_bleu(metric, base))
    if difference == 0:
        return 1.0
    sampled = np.abs(sampled)
    return float((np.sum(sampled - sampled.mean() > difference) + 1) / (len(sampled) + 1))


def to_text(counts: np.ndarray) -> str:
    """Return an array of :func:`count_sentences` as compressed text."""
    return base64.b64encode(zlib.compress(np.ascontiguousarray(counts.T, dtype="<u2").tobytes(), 9)).decode()


def from_text(text: str) -> np.ndarray:
    """Return the array that :func:`to_text` was given."""
    numbers = np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype="<u2")
    return numbers.reshape(COLUMNS, -1).T
