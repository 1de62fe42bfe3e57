"""Subwords: learned alike each time, and applied as the programs that they come from do."""

from __future__ import annotations

import gzip
import io
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import sentencepiece
import subwords
from fairseq.data import Dictionary
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from fairseq_compat import UserError

LIB = Path(subwords.__file__).parent


def sentences(count: int) -> list[str]:
    """Real ones where CORPORA has them."""
    if corpora := os.environ.get("CORPORA"):
        with gzip.open(Path(corpora) / "multi30k" / "train.de.gz", "rt", encoding="utf-8") as file:
            return [" ".join(next(file).split()) for _ in range(count)]
    chance = random.Random(5)
    words = ["".join(chance.choices("abcdeßü第", k=chance.randrange(1, 7))) for _ in range(60)]
    return [" ".join(chance.choices(words, k=chance.randrange(3, 9))) for _ in range(count)]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a training text of two languages, and the counts of its words."""
    folder = tmp_path_factory.mktemp("text")
    sides = {"en": sentences(400), "de": [sentence.upper() for sentence in reversed(sentences(400))]}
    counts: dict[str, int] = {}
    for language, side in sides.items():
        (folder / f"train.{language}").write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
        for word in " ".join(side).split():
            counts[word] = counts.get(word, 0) + 1
    (folder / "train.words").write_text("".join(f"{word} {n}\n" for word, n in counts.items()), encoding="utf-8")
    return folder


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, LIB / "subwords.py", *map(str, arguments)], capture_output=True, text=True, timeout=60
    )


@pytest.fixture(scope="module")
def codes(text: Path) -> Path:
    result = command("learn-bpe", text / "train.words", "--merges", "150", "--output", text / "bpe.codes")
    assert (result.returncode, result.stderr) == (0, f"{text}/bpe.codes: 150 merge operations\n")
    return text / "bpe.codes"


@pytest.fixture(scope="module")
def pieces(text: Path) -> Path:
    subwords.learn_sentencepiece([str(text / "train.en"), str(text / "train.de")], 200, 10_000, str(text / "pieces"))
    return text / "pieces.model"


def test_codes_are_those_of_subword_nmt(text: Path, codes: Path) -> None:
    theirs = io.StringIO()
    both = (text / "train.en").read_text(encoding="utf-8") + (text / "train.de").read_text(encoding="utf-8")
    learn_bpe(io.StringIO(both), theirs, 150)
    assert codes.read_text(encoding="utf-8") == theirs.getvalue()


def test_codes_do_not_depend_on_chance(text: Path, codes: Path) -> None:
    """Nor on the order in which words were counted."""
    lines_of_words = (text / "train.words").read_text(encoding="utf-8").splitlines(keepends=True)
    random.Random(2).shuffle(lines_of_words)
    (text / "other.words").write_text("".join(lines_of_words), encoding="utf-8")
    assert command("learn-bpe", text / "other.words", "--merges", "150", "--output", text / "other").returncode == 0
    assert (text / "other").read_bytes() == codes.read_bytes()


def test_no_words(tmp_path: Path) -> None:
    (tmp_path / "words").write_text("\n")
    with pytest.raises(UserError, match="words have no words to learn subwords from"):
        subwords.learn_bpe([str(tmp_path / "words")], 10, str(tmp_path / "codes"))
    assert not (tmp_path / "codes").exists()


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_split_as_subword_nmt_does(jobs: str, text: Path, codes: Path, tmp_path: Path) -> None:
    result = command(
        "apply", "--model", codes, "--input", text / "train", "--languages", "en", "de", "--output", tmp_path / "bpe",
        "--jobs", jobs,
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, f"{tmp_path}/bpe: 400 pairs\n")
    with codes.open(encoding="utf-8") as file:
        bpe = BPE(file)
    for language in ("en", "de"):
        split = lines(tmp_path / f"bpe.{language}")
        assert split == [bpe.process_line(line) for line in lines(text / f"train.{language}")]
        assert [line.replace("@@ ", "") for line in split] == lines(text / f"train.{language}")
        assert any("@@ " in line for line in split)


@pytest.mark.parametrize("threshold", [2, 40])
def test_rare_subwords_are_split_further(threshold: int, text: Path, codes: Path, tmp_path: Path) -> None:
    """As subword-nmt's own get-vocab and apply-bpe do it, byte for byte."""
    program = [sys.executable, "-c", "from subword_nmt.subword_nmt import main; main()"]
    for language in ("en", "de"):
        side, plain, vocabulary = text / f"train.{language}", tmp_path / "plain", tmp_path / "theirs.vocab"
        counts = Counter(" ".join(lines(side)).split())
        (tmp_path / "words").write_text("".join(f"{word} {n}\n" for word, n in counts.items()), encoding="utf-8")
        subwords.write_vocabulary(str(tmp_path / "words"), str(codes), str(tmp_path / f"vocab.{language}"))
        subprocess.run([*program, "apply-bpe", "-c", codes, "-i", side, "-o", plain], check=True)
        subprocess.run([*program, "get-vocab", "-i", plain, "-o", vocabulary], check=True)
        assert sorted(lines(tmp_path / f"vocab.{language}")) == sorted(lines(vocabulary))
        limits = ["--vocabulary", vocabulary, "--vocabulary-threshold", str(threshold)]
        subprocess.run(
            [*program, "apply-bpe", "-c", codes, "-i", side, "-o", tmp_path / f"theirs.{language}", *limits], check=True
        )
        assert threshold == 2 or (tmp_path / f"theirs.{language}").read_bytes() != plain.read_bytes()
    result = command(
        "apply", "--model", codes, "--input", text / "train", "--languages", "en", "de", "--output", tmp_path / "ours",
        "--jobs", "2", "--vocabulary", tmp_path / "vocab.en", tmp_path / "vocab.de", "--threshold", str(threshold),
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, f"{tmp_path}/ours: 400 pairs\n")
    for language in ("en", "de"):
        assert (tmp_path / f"ours.{language}").read_bytes() == (tmp_path / f"theirs.{language}").read_bytes()


def test_split_as_sentencepiece_does(text: Path, pieces: Path, tmp_path: Path) -> None:
    subwords.apply_subwords([str(pieces)], str(text / "train"), ["en", "de"], str(tmp_path / "out"), 0, 2)
    model = sentencepiece.SentencePieceProcessor(model_file=str(pieces))
    for language in ("en", "de"):
        split = lines(tmp_path / f"out.{language}")
        assert split == [" ".join(model.encode(line, out_type=str)) for line in lines(text / f"train.{language}")]


def test_a_model_for_each_side(text: Path, codes: Path, pieces: Path, tmp_path: Path) -> None:
    subwords.apply_subwords([str(codes), str(pieces)], str(text / "train"), ["en", "de"], str(tmp_path / "out"), 0, 1)
    assert any("@@ " in line for line in lines(tmp_path / "out.en"))
    assert all(line.startswith("\u2581") for line in lines(tmp_path / "out.de"))


def test_longest(text: Path, codes: Path, tmp_path: Path) -> None:
    subwords.apply_subwords([str(codes)], str(text / "train"), ["en", "de"], str(tmp_path / "all"), 0, 1)
    pairs = list(zip(lines(tmp_path / "all.en"), lines(tmp_path / "all.de"), strict=True))
    sizes = sorted(max(len(side.split()) for side in pair) for pair in pairs)
    for longest in (sizes[200], sizes[-1]):
        subwords.apply_subwords([str(codes)], str(text / "train"), ["en", "de"], str(tmp_path / "out"), longest, 2)
        kept = [pair for pair in pairs if max(len(side.split()) for side in pair) <= longest]
        assert list(zip(lines(tmp_path / "out.en"), lines(tmp_path / "out.de"), strict=True)) == kept
        assert (len(kept) < 400) == (longest < sizes[-1])
    with pytest.raises(UserError, match=r"no pair of .*train.en and .*train.de is left with at most 1 subwords"):
        subwords.apply_subwords([str(codes)], str(text / "train"), ["en", "de"], str(tmp_path / "none"), 1, 1)
    assert not list(tmp_path.glob("none*"))


def test_empty_lines_stay(codes: Path, tmp_path: Path) -> None:
    for language, content in (("en", "\nab\n\n"), ("de", "ab\n\n\n")):
        (tmp_path / f"in.{language}").write_text(content)
    subwords.apply_subwords([str(codes)], str(tmp_path / "in"), ["en", "de"], str(tmp_path / "out"), 0, 1)
    assert [bool(line) for line in lines(tmp_path / "out.en")] == [False, True, False]
    assert [bool(line) for line in lines(tmp_path / "out.de")] == [True, False, False]


def test_dictionary_has_all_pieces(text: Path, pieces: Path) -> None:
    """fairseq reads it, and no piece of any text is unknown to it."""
    dictionary = Dictionary.load(str(text / "pieces.dict.txt"))
    model = sentencepiece.SentencePieceProcessor(model_file=str(pieces))
    assert model.get_piece_size() == 200
    assert len(dictionary) == 200 - 3 + dictionary.nspecial
    for language in ("en", "de"):
        for line in lines(text / f"train.{language}"):
            for piece in model.encode(line, out_type=str):
                known = model.piece_to_id(piece) != model.unk_id()
                assert (dictionary.index(piece) != dictionary.unk()) == known


def test_pieces_do_not_depend_on_chance(text: Path, tmp_path: Path) -> None:
    """Though they are learned from a sample."""
    for name in "ab":
        result = command(
            "learn-sentencepiece", text / "train.en", "--size", "120", "--sample", "150", "--output", tmp_path / name
        )
        assert (result.returncode, result.stderr) == (0, "")
    assert (tmp_path / "a.dict.txt").read_bytes() == (tmp_path / "b.dict.txt").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.dict.txt", "a.model", "b.dict.txt", "b.model"]


def test_samples_are_spread_evenly(text: Path) -> None:
    names = [str(text / "train.en"), str(text / "train.de")]
    both = lines(text / "train.en") + lines(text / "train.de")
    for most in (1, 3, 100, 399, 799, 800, 900):
        sample = list(subwords._spread(names, 800, most))
        assert len(sample) == min(most, 800)
        assert most < 800 or sample == both
    assert list(subwords._spread(names, 800, 200)) == both[3::4]


@pytest.mark.parametrize(
    ("content", "size", "said"),
    [
        ("a b c\n", "1000", "Vocabulary size too high (1000). Please set it to a value <= 10."),
        ("a b c\n", "3", "Vocabulary size is smaller than required_chars. 3 vs 7. Increase vocab_size or"),
        ("", "100", "there is no text"),
    ],
)
def test_text_too_small_for_so_many_pieces(content: str, size: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text(content)
    result = command("learn-sentencepiece", tmp_path / "text", "--size", size, "--output", tmp_path / "out")
    assert result.returncode == 1
    assert result.stderr.startswith(
        f"subwords: error: SentencePiece cannot learn {int(size):,} entries from {tmp_path}/text: {said}"
    )
    assert result.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("none.codes", "none.codes does not exist; it is learned before text is split with it"),
        ("bad.model", "bad.model is no model of SentencePiece"),
    ],
)
def test_models_that_are_none(model: str, said: str, jobs: str, text: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.model").write_text("no model\n")
    result = command(
        "apply", "--model", tmp_path / model, "--input", text / "train", "--languages", "en", "de",
        "--output", tmp_path / "out", "--jobs", jobs,
    )  # fmt: skip
    assert result.returncode == 1
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["bad.model"]


def test_sides_of_different_length(codes: Path, tmp_path: Path) -> None:
    (tmp_path / "in.en").write_text("a\nb\n")
    (tmp_path / "in.de").write_text("a\n")
    with pytest.raises(UserError, match=r"in.en and .*in.de have different numbers of lines"):
        subwords.apply_subwords([str(codes)], str(tmp_path / "in"), ["en", "de"], str(tmp_path / "out"), 0, 1)
    assert not list(tmp_path.glob("out*"))
