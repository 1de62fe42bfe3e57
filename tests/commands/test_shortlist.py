"""``shortlist``, and ``translate --shortlist``: tokens of the list alone, and no translation without it."""

from __future__ import annotations

from pathlib import Path

import pytest
from probe_checkpoints import checkpoint_of, data_in

from fairseq_depthwise import cli
from fairseq_depthwise.serving.kept_graphs import VARIABLE


@pytest.fixture
def data(tmp_path: Path) -> str:
    """Of which each target sentence has the words of its source."""
    return data_in(tmp_path / "data")


@pytest.fixture
def learned(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert cli.main(["shortlist", data, str(tmp_path / "learned")]) == 0
    assert "src to tgt" in capsys.readouterr().out
    return tmp_path / "learned"


def test_each_word_goes_best_with_itself(data: str, learned: Path) -> None:
    best: dict[str, tuple[float, str]] = {}
    for target, source, probability in map(str.split, learned.read_text(encoding="utf-8").splitlines()):
        best[source] = max(best.get(source, (0.0, "")), (float(probability), target))
    words = best.keys() - {"</s>"}
    assert len(words) == 8
    assert all(best[word][1] == word for word in words)
    assert cli.main(["shortlist", data, str(learned)]) == 1  # it exists


@pytest.mark.slow
def test_translations_are_made_of_the_list(
    data: str, learned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    model = checkpoint_of(tmp_path, "depthwise_lstm_transformer", "model.pt")
    (tmp_path / "text").write_text("w1 w2 w3\n\nw5\n", encoding="utf-8")

    def translated(*options: str) -> list[str]:
        capsys.readouterr()
        given = [str(model), str(tmp_path / "text"), "--data", data, "--tokenized", "--cpu", "--max-len-b", "6"]
        assert cli.main(["translate", *given, "--int8", *options]) == 0
        return capsys.readouterr().out.splitlines()

    free = translated()
    assert translated("--shortlist", str(learned)) == free  # it is as large as the vocabulary
    (tmp_path / "two").write_text("w6 w1 0.5\nw7 w5 0.5\nw6 w5 0.5\nw7 w1 0.5\n", encoding="utf-8")
    # Besides what is no word, and those two, there is room for the two most frequent words.
    frequent = [line.split()[0] for line in Path(data, "dict.tgt.txt").read_text(encoding="utf-8").splitlines()[:2]]
    allowed = {"<unk>", "w6", "w7", *frequent}
    found = translated("--shortlist", str(tmp_path / "two"), "--shortlist-size", "8")
    assert any(found)
    assert set(" ".join(found).split()) <= allowed
    assert not set(" ".join(free).split()) <= allowed


def test_with_another_table_nothing_is_translated(
    data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = checkpoint_of(tmp_path, "sdt_transformer", "model.pt")
    (tmp_path / "table").write_text("w1 other 1\n", encoding="utf-8")
    given = [str(model), "--data", data, "--tokenized", "--cpu", "--compile", "--shortlist", str(tmp_path / "table")]
    assert cli.main(["translate", *given]) == 1
    assert str(tmp_path / "table") in capsys.readouterr().err
