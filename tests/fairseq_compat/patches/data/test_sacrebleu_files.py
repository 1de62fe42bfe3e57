"""``fairseq-score --sacrebleu`` gives what sacreBLEU gives for the same lines."""

from __future__ import annotations

from pathlib import Path

import pytest
import sacrebleu

SYSTEM = ["the cat sat on the mat .", "it rains", "a small house stands here"]
REFERENCE = ["the cat sat on a mat .", "it is raining", "a small house stands there"]


@pytest.mark.parametrize("from_stdin", [False, True])
def test_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], from_stdin: bool
) -> None:
    from fairseq_cli import score

    untouched = sacrebleu.corpus_bleu
    for name, lines in (("sys", SYSTEM), ("ref", REFERENCE)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    given = ["fairseq-score", "--sacrebleu", "--ref", str(tmp_path / "ref")]
    with (tmp_path / "sys").open(encoding="utf-8") as stdin:
        if from_stdin:
            monkeypatch.setattr("sys.stdin", stdin)
        else:
            given += ["--sys", str(tmp_path / "sys")]
        monkeypatch.setattr("sys.argv", given)
        score.cli_main()
    assert sacrebleu.corpus_bleu(SYSTEM, [REFERENCE]).format() in capsys.readouterr().out
    assert sacrebleu.corpus_bleu is untouched
