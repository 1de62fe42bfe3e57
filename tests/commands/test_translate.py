"""``fairseq-depthwise translate``: what it reads and writes, what is on stderr, and what is refused."""

from __future__ import annotations

import gzip
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from probe_checkpoints import checkpoint_of, data_in

from fairseq_depthwise import cli
from fairseq_depthwise.translation.translator import LoadedTranslator

SEARCH = ["--beam", "2", "--max-len-b", "8", "--cpu"]
LINES = ["w0 w1", "", "w3 w1 w2 w7 w7 w6", "w5", "w2 w2 w2", "w6 w1 w0"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with an untrained model whose data are where the training had them: beside it."""
    folder = tmp_path_factory.mktemp("run")
    data_in(folder / "gone")
    (folder / "checkpoints").mkdir()
    checkpoint_of(folder / "checkpoints", "depthwise_lstm_transformer", "checkpoint_best.pt")
    return str(folder / "checkpoints")


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "text.src"
    path.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return str(path)


class Stdin(SimpleNamespace):
    """Standard input that counts the lines that were read."""

    def __init__(self, lines: list[str], *, terminal: bool = False) -> None:
        self.read = 0

        def reading() -> object:
            for line in lines:
                self.read += 1
                yield f"{line}\n".encode()

        super().__init__(buffer=reading(), isatty=lambda: terminal)


def translated(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    capsys.readouterr()
    assert cli.main(["translate", *arguments, *SEARCH]) == 0
    return capsys.readouterr().out.split("\n")[:-1]


def test_one_line_for_each_line_from_files_or_stdin(
    model: str, text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = translated(capsys, model, text)
    assert [bool(line) for line in found] == [bool(line) for line in LINES]
    assert len(set(found)) > 2
    for size in (["--buffer-lines", "1"], ["--buffer-lines", "4"], ["--max-tokens", "1"], ["--batch-size", "2"]):
        assert translated(capsys, model, text, *size) == found
    assert translated(capsys, model, text, text) == found * 2
    for files in ([], [text, "-"]):
        monkeypatch.setattr("sys.stdin", Stdin(LINES))
        assert translated(capsys, model, *files) == (found * 2)[-6 * max(1, len(files)) :]
    # A pipe is opened once: a writer may have ended when it is opened again.
    os.mkfifo(pipe := f"{text}.pipe")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(Path(pipe).write_text, Path(text).read_text(encoding="utf-8"), encoding="utf-8")
        assert translated(capsys, model, pipe) == found


@pytest.mark.parametrize("terminal", [False, True])
def test_so_many_lines_are_read_at_a_time(
    terminal: bool, model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stdin = Stdin(LINES, terminal=terminal)
    monkeypatch.setattr("sys.stdin", stdin)
    read_before: list[int] = []
    translations = LoadedTranslator.translations

    def counted(self: LoadedTranslator, lines: list[str], **others: Any) -> object:
        read_before.append(stdin.read)
        return translations(self, lines, **others)

    monkeypatch.setattr(LoadedTranslator, "translations", counted)
    assert cli.main(["translate", model, "--buffer-lines", "4", *SEARCH]) == 0
    assert read_before == ([1, 2, 3, 4, 5, 6] if terminal else [4, 6])
    messages = capsys.readouterr().err
    assert ("type a sentence" in messages) == terminal
    assert ("6 lines translated" in messages) != terminal


def test_warnings_and_progress_are_on_stderr(
    model: str, text: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "long").write_text("w1\n" + "w2 " * 9 + "\n", encoding="utf-8")
    assert cli.main(["translate", model, text, str(tmp_path / "long"), "--max-line-tokens", "6", *SEARCH]) == 0
    captured = capsys.readouterr()
    assert f"{tmp_path / 'long'}, line 2: too long" in captured.err
    assert "line 1: too long" not in captured.err
    assert captured.out.count("\n") == 8
    assert cli.main(["translate", model, text, "--cpu", "--max-len-b", "1"]) == 0
    cut_off = capsys.readouterr().err
    assert f"{text}, line 1: " in cut_off
    assert f"{text}, line 2:" not in cut_off


def test_scores_and_json(model: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    plain = translated(capsys, model, text)
    scored = [line.split("\t") for line in translated(capsys, model, text, "--scores")]
    assert [line for _, line in scored] == plain
    documents = [json.loads(line) for line in translated(capsys, model, text, "--json")]
    assert [one["source"] for one in documents] == LINES
    assert [one["translation"] for one in documents] == plain
    assert [f"{one['score']:.4f}" for one in documents] == [score for score, _ in scored]
    assert all("nbest" not in one for one in documents)
    documents = [json.loads(line) for line in translated(capsys, model, text, "--json", "--nbest", "2")]
    assert [one["nbest"][0]["text"] for one in documents] == plain
    assert [len(one["nbest"]) for one in documents] == [2, 1, 2, 2, 2, 2]
    for scores in ([hypothesis["score"] for hypothesis in one["nbest"]] for one in documents):
        assert scores == sorted(scores, reverse=True)


def test_tokens_and_words_in_json(model: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--json", "--token-scores", "--print-alignment", "--nbest", "2"]
    for line, one in zip(LINES, map(json.loads, translated(capsys, model, text, *options)), strict=True):
        assert [token for token in one["tokens"] if token not in ("<s>", "</s>")] == one["words"]
        assert (one["source_words"], one["translation"]) == (line.split(), " ".join(one["words"]))
        assert {target for _, target in one["alignment"]} <= set(range(len(one["words"])))
        assert {**one, **one["nbest"][0]} == {**one, "text": one["translation"]}
        if line:
            assert one["score"] == pytest.approx(sum(one["token_scores"]) / len(one["tokens"]) ** 0.6, abs=1e-4)


def test_soft_alignment(model: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A matrix after each line: a row for each word of the translation, a weight for each of the source."""
    soft = [line.split("\t") for line in translated(capsys, model, text, "--print-alignment", "soft")]
    assert [line for line, _ in soft] == translated(capsys, model, text)
    for line, (translation, matrix) in zip(LINES, soft, strict=True):
        rows = [[float(weight) for weight in row.split(",")] for row in matrix.split()]
        assert [len(row) for row in rows] == [len(line.split())] * len(translation.split())


def test_constraints(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tabs separate them; lines without are translated as ever, and so are those whose constraints cannot be met."""
    sources, given = ["w0 w1", "w3 w1", "", "w2 w2"], ["w0 w1\tw6 w4", "w3 w1", "\tw2", "w2 w2\tw9"]
    (tmp_path / "sources").write_text("".join(f"{line}\n" for line in sources), encoding="utf-8")
    (tmp_path / "text").write_text("".join(f"{line}\r\n" for line in given), encoding="utf-8")
    plain = translated(capsys, model, str(tmp_path / "sources"))
    assert cli.main(["translate", model, str(tmp_path / "text"), "--json", "--constraints", *SEARCH]) == 0
    captured = capsys.readouterr()
    documents = [json.loads(line) for line in captured.out.splitlines()]
    assert [one["source"] for one in documents] == sources
    first, *others = (one["translation"] for one in documents)
    assert "w6 w4" in first
    assert others == plain[1:]
    assert [[*one["unmet_constraints"]] for one in documents] == [[], [], ["w2"], ["w9"]]
    assert f"{tmp_path}/text, line 3: " in captured.err


def test_output_is_written_whole(model: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = translated(capsys, model, text)
    output = tmp_path / "out.tgt"
    assert translated(capsys, model, text, "--output", str(output)) == []
    assert output.read_text(encoding="utf-8").split("\n")[:-1] == expected
    (tmp_path / "latin").write_bytes(b"w1\nw2\n\xe4\n")
    bad = ["translate", model, str(tmp_path / "latin"), "--output", str(output), "--force", "--buffer-lines", "1"]
    assert cli.main([*bad, *SEARCH]) == 1
    assert f"{tmp_path / 'latin'} is not UTF-8: line 3 has the byte 0xe4" in capsys.readouterr().err
    assert output.read_text(encoding="utf-8").split("\n")[:-1] == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latin", "out.tgt", "text.src"]
    # Compressed, too.
    (tmp_path / "text.gz").write_bytes(gzip.compress(Path(text).read_bytes()))
    output = tmp_path / "out.gz"
    assert translated(capsys, model, str(tmp_path / "text.gz"), "--output", str(output), "--buffer-lines", "2") == []
    assert gzip.decompress(output.read_bytes()).decode().split("\n")[:-1] == expected


def test_sampling(model: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Drawn anew for each seed, the same again with the same; from the most probable token it is greedy search."""
    found = {seed: translated(capsys, model, text, "--sampling", "--seed", seed) for seed in "123"}
    assert len({tuple(lines) for lines in found.values()}) == 3
    assert all([bool(line) for line in lines] == [bool(line) for line in LINES] for lines in found.values())
    assert translated(capsys, model, text, "--sampling", "--seed", "2") == found["2"]
    assert cli.main(["translate", model, text, "--cpu", "--beam", "1", "--max-len-b", "8"]) == 0
    greedy = capsys.readouterr().out.split("\n")[:-1]
    assert cli.main(
        ["translate", model, text, "--cpu", "--beam", "1", "--max-len-b", "8", "--sampling", "--sampling-topk", "1"]
    ) == 0  # fmt: skip
    assert capsys.readouterr().out.split("\n")[:-1] == greedy
