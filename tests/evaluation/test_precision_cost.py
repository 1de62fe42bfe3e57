"""What a lower precision costs: BLEU as sacreBLEU computes it, lines that differ, speeds."""

from __future__ import annotations

from pathlib import Path

import pytest
import sacrebleu

from fairseq_depthwise.evaluation import precision_cost as module
from fairseq_depthwise.evaluation.precision_cost import precision_cost

REFERENCE = ["the old cat sleeps on the red chair .", "a dog barks at the small house .", "nobody hears it at all ."]
FULL = ["the old cat sleeps on a red chair .", "a dog barks at the small house .", "nobody hears it ."]
LOWER = ["the old cat sleeps on a red chair .", "a dog barks at a small house .", "nobody heard it ."]


@pytest.mark.parametrize("lower", [LOWER, FULL])
def test_cost(lower: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ref").write_text("".join(f"{line}\n" for line in REFERENCE), encoding="utf-8")
    monkeypatch.setattr(module.time, "perf_counter", iter([0.0, 2.0, 5.0, 5.5]).__next__)
    made = {"fp32": FULL, "int8": lower}
    path = str(tmp_path / "ref")
    cost = precision_cost([path], path, "int8", lambda name: lambda lines: made[name][: len(lines)])
    expected = [sacrebleu.corpus_bleu(lines, [REFERENCE]).score for lines in (FULL, lower)]
    assert (cost.precision, cost.sentences, cost.different_lines) == ("int8", 3, 2 if lower is LOWER else 0)
    assert [cost.full_bleu, cost.lower_bleu] == pytest.approx(expected)
    assert cost.difference == pytest.approx(expected[1] - expected[0])
    assert (cost.difference < 0) == (lower is LOWER)
    assert (cost.full_speed, cost.lower_speed) == (1.5, 6.0)
    assert "tok:13a" in cost.signature
