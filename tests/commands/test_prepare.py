"""``prepare``: from raw text to a folder for training, what it prints, and what it refuses."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from forked_python import ForkedPython

from fairseq_depthwise import cli
from fairseq_depthwise.preparation.steps import Steps

CORPUS = Path(__file__).parents[2] / "examples" / "quickstart" / "corpus"
PREPARE = "prepare -s en -t de --workers 1 --merges 150 --train {corpus}/train --test {corpus}/test --clean 3,60"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Raw text with a byte order mark, carriage returns, a dash, a packed file, an empty side and a long one."""
    folder = tmp_path_factory.mktemp("corpus")
    for language in ("en", "de"):
        lines = (CORPUS / f"train.{language}").read_text(encoding="utf-8").split("\n")[:240]
        lines[:3] = [
            f"\ufeff{lines[0]}\r",
            f"A well-known \r {lines[1]}",
            lines[2] * 9 if language == "en" else lines[2],
        ]
        lines[5] = "" if language == "de" else lines[5]
        (folder / f"train.{language}").write_text("\n".join(lines), encoding="utf-8", newline="")
        (folder / f"test.{language}").write_text("\n".join(lines[6:20]) + "\n", encoding="utf-8", newline="")
    (folder / "train.de.gz").write_bytes(gzip.compress((folder / "train.de").read_bytes()))
    (folder / "train.de").unlink()
    return folder


@pytest.fixture(scope="module")
def command(corpus: Path) -> list[str]:
    """The command without the folder to make."""
    return PREPARE.format(corpus=corpus).split()


@pytest.fixture(scope="module")
def prepared(command: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of data with BPE and a part held out."""
    data = tmp_path_factory.mktemp("prepared") / "data-bin"
    assert cli.main([*command, str(data)]) == 0
    return data


def binary_files(folder: Path) -> dict[str, bytes]:
    """Return what fairseq reads."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".bin", ".idx", ".txt")}


def test_the_same_command_finds_it_made(prepared: Path, command: list[str], document: Callable[..., dict]) -> None:
    """And its table says what was held out and dropped."""
    before = {path.name: path.stat().st_mtime_ns for path in prepared.iterdir()}
    table = document(*command, prepared)
    assert {path.name: path.stat().st_mtime_ns for path in prepared.iterdir()} == before
    lines = {(row["part"], row["language"]): row["lines"] for row in table["rows"]}
    assert lines["valid", "en"] == lines["valid", "de"] == table["held_out"] == 12
    assert lines["train", "en"] == lines["train", "de"] == 240 - 12 - sum(table["dropped"].values())
    assert table["dropped"]["a side is empty"] == 1
    assert len(table["dropped"]) == 2
    assert len((prepared / "held_out.en").read_text(encoding="utf-8").splitlines()) == 12


@pytest.mark.parametrize("name", ["text.json", "train.en-de.en.bin"])
def test_a_folder_that_has_lost_a_file_is_not_ready(
    name: str, prepared: Path, command: list[str], refusal: Callable[..., str]
) -> None:
    content = (prepared / name).read_bytes()
    (prepared / name).write_bytes(content[:-1])
    try:
        assert name in refusal(*command, prepared)
    finally:
        (prepared / name).write_bytes(content)


@pytest.mark.parametrize("subwords", ["bpe", "sentencepiece"])
def test_the_tools_do_the_same_by_hand(
    subwords: str,
    prepared: Path,
    command: list[str],
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    forked_python: ForkedPython,
) -> None:
    data = tmp_path / "data-bin"
    monkeypatch.setattr(sys, "executable", str(forked_python.python))  # the script's commands are beside it
    options = ["--subwords", subwords]
    if subwords == "sentencepiece":
        options += ["--separate-dictionaries", "--test", str(corpus / "test")]
    assert cli.main([*command, *options, str(data)]) == 0
    subprocess.run(["sh", data / "commands.sh"], check=True, capture_output=True, cwd="/")
    made = binary_files(data)
    assert ("test1.en-de.de.bin" in made) == (subwords == "sentencepiece")
    assert (made == binary_files(prepared)) == (subwords == "bpe")
    assert binary_files(data / "by-hand" / "data-bin") == made


def test_an_interrupted_preparation_goes_on(
    prepared: Path, command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was finished is not done again, and the result is the same."""

    def interrupt(steps: Steps) -> dict:
        raise KeyboardInterrupt

    def again(steps: Steps) -> dict:
        raise AssertionError("was done before")

    data = tmp_path / "data-bin"
    data.mkdir()  # an empty folder is as good as none
    with monkeypatch.context() as patched:
        patched.setattr(Steps, "binarize", interrupt)
        assert cli.main([*command, str(data)]) == 130
    assert list(data.iterdir()) == []
    with monkeypatch.context() as patched:
        patched.setattr(Steps, "tokenize", again)
        assert cli.main([*command, str(data)]) == 0
    assert binary_files(data) == binary_files(prepared)
    assert [path.name for path in tmp_path.iterdir()] == ["data-bin"]


def test_other_settings_or_texts_begin_anew(prepared: Path, command: list[str], tmp_path: Path) -> None:
    """After a preparation that failed: the folder has nothing of it."""
    data = tmp_path / "data-bin"
    assert cli.main([*command, "--merges", "100000", str(data)]) == 1
    assert cli.main([*command, str(data)]) == 0
    assert binary_files(data) == binary_files(prepared)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--merges", "140"], ["merges 150 and now 140"]),
        (["--train", "{corpus}/test"], ["the text of train"]),
        (["--test", "{corpus}/missing"], ["--test", "missing.en"]),
        (["--target-lang", "en"], ["--source-lang", "--target-lang"]),
        (["--subwords", "none"], ["--merges"]),
    ],
)
def test_refused_where_there_is_a_folder(
    options: list[str], words: list[str], prepared: Path, corpus: Path, command: list[str], refusal: Callable[..., str]
) -> None:
    sentence = refusal(*command, *(option.format(corpus=corpus) for option in options), prepared)
    assert all(word in sentence for word in words), sentence


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, command: list[str], refusal: Callable[..., str]) -> None:
    (tmp_path / "notes").write_text("mine")
    assert str(tmp_path) in refusal(*command, tmp_path)
    assert str(tmp_path / "notes") in refusal(*command, tmp_path / "notes")
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


@pytest.mark.parametrize(
    ("english", "options", "words"),
    [
        ("one\ntwo\n", [], ["train.en has 2 lines", "train.de 3"]),
        ("one\ntwo\nth\udcffree\n", [], ["train.en", "line 3", "0xff"]),
        ("\n\n\n", [], ["--merges 150"]),
        ("one\ntwo\nthree\n", ["--subwords", "sentencepiece"], ["--merges 150"]),
    ],
)
def test_texts_that_cannot_be_used(
    english: str, options: list[str], words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.en").write_bytes(english.encode("utf-8", "surrogateescape"))
    (tmp_path / "train.de").write_text("eins\nzwei\ndrei\n")
    given = ["prepare", "-s", "en", "-t", "de", "--merges", "150", "--train", str(tmp_path / "train"), *options]
    assert cli.main([*given, str(tmp_path / "data-bin")]) == 1
    sentence = capsys.readouterr().err.splitlines()[-1]
    assert all(word in sentence for word in words), sentence
    assert not (tmp_path / "data-bin").exists()
