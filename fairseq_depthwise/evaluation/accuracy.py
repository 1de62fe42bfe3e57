"""Accuracy, for texts with one correct answer per line, as a metric of sacreBLEU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sacrebleu.metrics.base import Metric, Score, Signature
from sacrebleu.utils import sum_of_lists


class Accuracy(Metric):
    """The percentage of translations that are equal to a reference, except for white space around them.

    The statistics of a sentence are 1 if it is correct, else 0, and 1: their sums are the number of correct sentences
    and the number of all.
    """

    _SIGNATURE_TYPE = Signature

    # The methods that sacreBLEU calls. It sums the statistics of all sentences, or of a bootstrap sample.
    def _preprocess_segment(self, sent: str) -> str:
        return sent.strip()

    def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, Any]:
        return {"answers": set(refs)}

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict[str, Any]) -> list[int]:
        return [int(hypothesis in ref_kwargs["answers"]), 1]

    def _aggregate_and_compute(self, stats: list[list[int]]) -> Score:
        return self._compute_score_from_stats(sum_of_lists(stats))

    def _compute_score_from_stats(self, stats: list[int]) -> Score:
        correct, sentences = stats
        return Score("accuracy", 100 * correct / sentences)
