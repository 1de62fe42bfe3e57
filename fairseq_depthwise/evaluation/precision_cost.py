"""BLEU and speed of a lower precision compared with float32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fairseq_depthwise.evaluation.scores import TranslationMetric


@dataclass(frozen=True)
class TimedTranslations:
    """Translations of a text."""

    precision: str
    sentences: Sequence[str]
    seconds: float


@dataclass(frozen=True)
class PrecisionCost:
    """Comparison of two precisions of a model; ``full`` is float32, ``lower`` the other.

    Attributes:
        precision: of ``lower``.
        sentences: number of sentences.
        full_bleu, lower_bleu: from 0 to 100.
        signature: sacreBLEU's.
        different_lines: number of translations that differ.
        full_speed, lower_speed: sentences a second.
    """

    precision: str
    sentences: int
    full_bleu: float
    lower_bleu: float
    signature: str
    different_lines: int
    full_speed: float
    lower_speed: float

    @property
    def difference(self) -> float:
        """Difference in BLEU; negative where the lower precision is worse."""
        return self.lower_bleu - self.full_bleu


def precision_cost(full: TimedTranslations, lower: TimedTranslations, reference: Sequence[str]) -> PrecisionCost:
    """Score a text's translations in two precisions against one reference; all three have as many lines."""
    metric = TranslationMetric()
    full_score, lower_score = (metric.score(timed.sentences, [reference]) for timed in (full, lower))
    different = sum(first != second for first, second in zip(full.sentences, lower.sentences, strict=True))
    return PrecisionCost(
        precision=lower.precision,
        sentences=len(reference),
        full_bleu=full_score.score,
        lower_bleu=lower_score.score,
        signature=lower_score.signature,
        different_lines=different,
        full_speed=len(reference) / full.seconds,
        lower_speed=len(reference) / lower.seconds,
    )
