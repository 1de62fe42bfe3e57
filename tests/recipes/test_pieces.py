"""Subwords of SentencePiece: learned alike each time, and applied as the library does."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path

import pieces
import pytest
import sentencepiece
from fairseq.data import Dictionary
from recipe_runs import lines

LANGUAGES = ["en", "de"]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a training text of two languages, with empty lines, and the subwords that were learned from it."""
    folder, chance = tmp_path_factory.mktemp("text"), random.Random(5)
    words = ["".join(chance.choices("abcdeßü第", k=chance.randrange(1, 7))) for _ in range(300)]
    for language in LANGUAGES:
        side = [" ".join(chance.choices(words, k=chance.randrange(9))) for _ in range(400)]
        (folder / f"train.{language}").write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    command(
        "learn", *(folder / f"train.{language}" for language in LANGUAGES), "--size=200", "--output", folder / "all"
    )
    return folder


def command(*arguments: str | Path, status: int = 0) -> str:
    """Run a command, which ends with ``status``, and return what it says on stderr."""
    words = [sys.executable, pieces.__file__, *map(str, arguments)]
    result = subprocess.run(words, check=False, timeout=60, capture_output=True, text=True)
    assert result.returncode == status, result.stderr
    return result.stderr


def test_fewer_entries_than_characters(text: Path, tmp_path: Path) -> None:
    """The setting and its value are named, and the least that is right: nothing less is, and nothing is left behind."""
    arguments = ("learn", text / "train.en", "--output", tmp_path / "few")
    message = command(*arguments, "--size=5", status=1)
    assert "VOCABULARY=5" in message
    assert message.count("\n") == 1
    least = int(re.findall(r"5 vs (\d+)", message)[0])
    # Eight letters, the mark of a word's begin, and three entries that every model has.
    assert least == 8 + 1 + 3
    command(*arguments, f"--size={least - 1}", status=1)
    assert list(tmp_path.iterdir()) == []
    command(*arguments, f"--size={least}")
    assert (tmp_path / "few.model").exists()


def test_split_as_sentencepiece_does_with_a_dictionary_of_all_pieces(text: Path, tmp_path: Path) -> None:
    library = sentencepiece.SentencePieceProcessor(model_file=str(text / "all.model"))
    dictionary = Dictionary.load(str(text / "all.dict.txt"))
    assert len(dictionary) == library.get_piece_size() - 3 + dictionary.nspecial
    for language in LANGUAGES:
        command("apply", text / "all.model", text / f"train.{language}", "--output", tmp_path / language, "--jobs=2")
        expected = [library.encode(line, out_type=str) for line in lines(text / f"train.{language}")]
        assert lines(tmp_path / language) == [" ".join(line) for line in expected]
        assert [] in expected
        for piece in {piece for line in expected for piece in line}:
            known = library.piece_to_id(piece) != library.unk_id()
            assert (dictionary.index(piece) != dictionary.unk()) == known
