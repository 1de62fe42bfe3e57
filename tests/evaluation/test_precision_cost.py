"""What a lower precision costs: BLEU as sacreBLEU computes it, lines that differ, speeds."""

from __future__ import annotations

import pytest
import sacrebleu

from fairseq_depthwise.evaluation.precision_cost import TimedTranslations, precision_cost

REFERENCE = ["the old cat sleeps on the red chair .", "a dog barks at the small house .", "nobody hears it at all ."]
FULL = ["the old cat sleeps on a red chair .", "a dog barks at the small house .", "nobody hears it ."]
LOWER = ["the old cat sleeps on a red chair .", "a dog barks at a small house .", "nobody heard it ."]


def test_cost() -> None:
    cost = precision_cost(TimedTranslations("fp32", FULL, 2.0), TimedTranslations("int8", LOWER, 0.5), REFERENCE)
    full, lower = (sacrebleu.corpus_bleu(one, [REFERENCE]).score for one in (FULL, LOWER))
    assert (cost.precision, cost.sentences, cost.different_lines) == ("int8", 3, 2)
    assert (cost.full_bleu, cost.lower_bleu) == (pytest.approx(full), pytest.approx(lower))
    assert cost.difference == pytest.approx(lower - full)
    assert cost.difference < 0
    assert (cost.full_speed, cost.lower_speed) == (1.5, 6.0)
    assert "tok:13a" in cost.signature


def test_nothing_lost() -> None:
    cost = precision_cost(TimedTranslations("fp32", FULL, 1.0), TimedTranslations("bf16", FULL, 1.0), REFERENCE)
    assert (cost.difference, cost.different_lines) == (0, 0)
