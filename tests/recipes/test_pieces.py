"""Subwords of SentencePiece: learned alike each time, and applied as the library does."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pieces as subwords
import pytest
import sentencepiece
from fairseq.data import Dictionary

from fairseq_compat import UserError

LANGUAGES = ["en", "de"]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a training text of two languages."""
    folder, chance = tmp_path_factory.mktemp("text"), random.Random(5)
    words = ["".join(chance.choices("abcdeßü第", k=chance.randrange(1, 7))) for _ in range(300)]
    for language in LANGUAGES:
        side = [" ".join(chance.choices(words, k=chance.randrange(3, 9))) for _ in range(400)]
        (folder / f"train.{language}").write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def model(text: Path) -> Path:
    subwords.learn([str(text / f"train.{language}") for language in LANGUAGES], 200, 10_000, str(text / "pieces"))
    return text / "pieces.model"


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def test_split_as_sentencepiece_does(text: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subwords, "CHUNK", 150)
    subwords.apply([str(model)], str(text / "train"), LANGUAGES, str(tmp_path / "out"), 0, 2)
    library = sentencepiece.SentencePieceProcessor(model_file=str(model))
    for language in LANGUAGES:
        expected = [" ".join(library.encode(line, out_type=str)) for line in lines(text / f"train.{language}")]
        assert lines(tmp_path / f"out.{language}") == expected


def test_longest(text: Path, model: Path, tmp_path: Path) -> None:
    subwords.apply([str(model)], str(text / "train"), LANGUAGES, str(tmp_path / "all"), 0, 1)
    pairs = list(zip(*(lines(tmp_path / f"all.{language}") for language in LANGUAGES), strict=True))
    sizes = sorted(max(len(side.split()) for side in pair) for pair in pairs)
    for longest in (sizes[200], sizes[-1]):
        subwords.apply([str(model)], str(text / "train"), LANGUAGES, str(tmp_path / "out"), longest, 2)
        short = [pair for pair in pairs if max(len(side.split()) for side in pair) <= longest]
        assert list(zip(*(lines(tmp_path / f"out.{language}") for language in LANGUAGES), strict=True)) == short
        assert (len(short) < 400) == (longest < sizes[-1])
    with pytest.raises(UserError, match=r"no pair of .*train.en and .*train.de has at most 1 subwords"):
        subwords.apply([str(model)], str(text / "train"), LANGUAGES, str(tmp_path / "none"), 1, 1)
    assert not list(tmp_path.glob("none*"))


def test_empty_lines_stay(model: Path, tmp_path: Path) -> None:
    for language, content in (("en", "\nab\n\n"), ("de", "ab\n\n\n")):
        (tmp_path / f"in.{language}").write_text(content)
    subwords.apply([str(model)], str(tmp_path / "in"), LANGUAGES, str(tmp_path / "out"), 0, 1)
    assert [bool(line) for line in lines(tmp_path / "out.en")] == [False, True, False]
    assert [bool(line) for line in lines(tmp_path / "out.de")] == [True, False, False]


@pytest.mark.parametrize("chunk", [1, 10])
def test_sides_of_unequal_length(chunk: int, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subwords, "CHUNK", chunk)
    (tmp_path / "in.en").write_text("ab\n" * 3)
    (tmp_path / "in.de").write_text("ab\n" * 2)
    with pytest.raises(UserError, match=r"in\.de has 2 lines, .*in\.en more"):
        subwords.apply([str(model)], str(tmp_path / "in"), LANGUAGES, str(tmp_path / "out"), 0, 1)
    assert not list(tmp_path.glob("out*"))


def test_dictionary_has_all_pieces(text: Path, model: Path) -> None:
    """fairseq reads it, and no piece of any text is unknown to it."""
    dictionary = Dictionary.load(str(text / "pieces.dict.txt"))
    library = sentencepiece.SentencePieceProcessor(model_file=str(model))
    assert len(dictionary) == library.get_piece_size() - 3 + dictionary.nspecial
    for language in LANGUAGES:
        split = library.encode(lines(text / f"train.{language}"), out_type=str)
        for piece in {piece for line in split for piece in line}:
            known = library.piece_to_id(piece) != library.unk_id()
            assert (dictionary.index(piece) != dictionary.unk()) == known


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, subwords.__file__, *map(str, arguments)], capture_output=True, text=True, timeout=60
    )


def test_pieces_do_not_depend_on_chance(text: Path, tmp_path: Path) -> None:
    """Though they are learned from a sample."""
    for name in "ab":
        result = command("learn", text / "train.en", "--size", "120", "--sample", "150", "--output", tmp_path / name)
        assert (result.returncode, result.stderr) == (0, "")
    assert (tmp_path / "a.dict.txt").read_bytes() == (tmp_path / "b.dict.txt").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.dict.txt", "a.model", "b.dict.txt", "b.model"]


def test_samples_are_spread_evenly(text: Path) -> None:
    both = lines(text / "train.en") + lines(text / "train.de")
    for most in (1, 399, 799, 800, 900):
        assert len(list(subwords.spread([str(text / "train.en"), str(text / "train.de")], most))) == min(most, 800)
    assert list(subwords.spread([str(text / "train.en"), str(text / "train.de")], 200)) == both[3::4]


@pytest.mark.parametrize(
    ("content", "size", "message"),
    [
        ("a b c\n", "1000", "Vocabulary size too high (1000)"),
        ("a b c\n", "3", "Vocabulary size is smaller than required_chars"),
        ("", "100", "there is no text"),
    ],
)
def test_text_too_small_for_so_many_pieces(content: str, size: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text(content)
    result = command("learn", tmp_path / "text", "--size", size, "--output", tmp_path / "out")
    assert result.returncode == 1
    assert f"SentencePiece cannot learn {int(size):,} entries from {tmp_path}/text: {message}" in result.stderr
    assert result.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


def test_a_model_that_is_none(text: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.model").write_text("no model\n")
    result = command(
        "apply", tmp_path / "bad.model", "--input", text / "train", "--languages", *LANGUAGES,
        "--output", tmp_path / "out",
    )  # fmt: skip
    assert result.returncode == 1
    assert "bad.model is no model of SentencePiece" in result.stderr
    assert result.stderr.count("\n") == 1
