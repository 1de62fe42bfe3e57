"""BLEU and speed of a lower precision compared with float32."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fairseq_compat import UserError
from fairseq_depthwise.evaluation.scores import TranslationMetric, require_same_length
from fairseq_depthwise.evaluation.translations import read_lines, read_reference

#: Translates lines.
Translate = Callable[[Sequence[str]], list[str]]


@dataclass(frozen=True)
class PrecisionCost:
    """Comparison of a model in float32 (full) with the same in a lower precision.

    Attributes:
        precision: the lower one.
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


def precision_cost(
    files: Sequence[str], reference: str, precision: str, load: Callable[[str], Translate]
) -> PrecisionCost:
    """Translate a text in float32 and in another precision, and compare both with its reference.

    Args:
        files: the text.
        reference: its translation.
        precision: fp16, bf16 or int8.
        load: loads the model in a precision; called twice, and there is one model at a time.

    Raises:
        UserError: text and reference differ in length, or a line of them is empty.
    """
    lines, expected = _read(files, reference)
    (full, full_seconds), (lower, lower_seconds) = (_timed(load(name), lines) for name in ("fp32", precision))
    metric = TranslationMetric()
    full_score, lower_score = (metric.score(sentences, [expected]) for sentences in (full, lower))
    return PrecisionCost(
        precision=precision,
        sentences=len(lines),
        full_bleu=full_score.score,
        lower_bleu=lower_score.score,
        signature=lower_score.signature,
        different_lines=sum(first != second for first, second in zip(full, lower, strict=True)),
        full_speed=len(lines) / full_seconds,
        lower_speed=len(lines) / lower_seconds,
    )


def _read(files: Sequence[str], reference: str) -> tuple[list[str], list[str]]:
    """Read the text and its reference."""
    text = {path: read_lines(path) for path in files}
    expected = read_reference(reference)
    lines = [line for path in files for line in text[path]]
    require_same_length(" + ".join(files), lines, reference, expected)
    for path, sentences in (*text.items(), (reference, expected)):
        for number, line in enumerate(sentences, start=1):
            if not line.strip():
                raise UserError(f"{path}, line {number} is empty; --reference compares texts of one sentence per line")
    return lines, expected


def _timed(translate: Translate, lines: Sequence[str]) -> tuple[list[str], float]:
    """Return translations, and the seconds that they took."""
    translate(lines[:1])  # what is made at the first use, as packed weights
    started = time.perf_counter()
    return translate(lines), time.perf_counter() - started
