"""``fairseq-score --sentence-bleu`` prints a score for each sentence, and without the option one for all as before."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


@pytest.mark.parametrize(("option", "scores"), [(["--sentence-bleu"], ["100.00", "44.72"]), ([], ["64.09"])])
def test_scores(
    option: list[str], scores: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    from fairseq_cli import score

    (tmp_path / "sys").write_text("a b c d e\na b x d e\n", encoding="utf-8")
    (tmp_path / "ref").write_text("a b c d e\na b c d e\n", encoding="utf-8")
    given = ["--sys", str(tmp_path / "sys"), "--ref", str(tmp_path / "ref"), *option]
    monkeypatch.setattr("sys.argv", ["fairseq-score", *given])
    score.cli_main()
    assert re.findall(r"BLEU4 = ([\d.]+)", capsys.readouterr().out) == scores
