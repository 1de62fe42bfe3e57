"""What ``fairseq-preprocess`` leaves behind if it fails, and what it writes to."""

from __future__ import annotations

from pathlib import Path

import fairseq_cli.preprocess
import pytest
from fairseq import options
from fairseq.data import Dictionary

from fairseq_compat import UserError
from fairseq_compat.patches.preprocessing import WholeFile


def preprocess(folder: Path, text: str, *more: str) -> None:
    """Binarize a text with itself as translation."""
    for language in ("en", "de"):
        (folder / f"train.{language}").write_text(text, encoding="utf-8")
    command = ["-s", "en", "-t", "de", "--trainpref", str(folder / "train"), "--destdir", str(folder / "bin"), *more]
    fairseq_cli.preprocess.main(options.get_preprocessing_parser().parse_args(command))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "bin").iterdir() if path.name != "preprocess.log"}


def test_a_failure_leaves_the_data_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    preprocess(tmp_path, "a b\nc\n")
    before, make = contents(tmp_path), fairseq_cli.preprocess._make_all

    def failing(language: str, *more: object) -> None:
        make(language, *more)
        if language == "de":
            raise KeyboardInterrupt

    monkeypatch.setattr(fairseq_cli.preprocess, "_make_all", failing)
    dictionaries = [f"--{side}dict={tmp_path}/bin/dict.en.txt" for side in ("src", "tgt")]
    with pytest.raises(KeyboardInterrupt):
        preprocess(tmp_path, "c\nb a\n", *dictionaries)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("name", "more"),
    [("dict.en.txt", ["--srcdict"]), ("train.en-de.de.bin", []), ("train.en-de.en", ["--dataset-impl", "raw"])],
)
def test_a_link_is_replaced(name: str, more: list[str], tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("precious", encoding="utf-8")
    (tmp_path / "mine").write_text("a 2\nb 1\n", encoding="utf-8")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / name).symlink_to(tmp_path / "theirs")
    preprocess(tmp_path, "a b\n", *more, *([str(tmp_path / "mine")] if more == ["--srcdict"] else []))
    assert (tmp_path / "theirs").read_text(encoding="utf-8") == "precious"
    assert not (tmp_path / "bin" / name).is_symlink()


def test_a_dictionary_that_cannot_be_written_is_the_one_of_before(tmp_path: Path) -> None:
    path = tmp_path / "dict.txt"
    path.write_text("a 1\n", encoding="utf-8")
    dictionary = Dictionary()
    dictionary.add_symbol("\ud800")  # no UTF-8
    with pytest.raises(UnicodeEncodeError):
        dictionary.save(str(path))
    assert [file.name for file in tmp_path.iterdir()] == ["dict.txt"]
    assert path.read_text(encoding="utf-8") == "a 1\n"


def test_a_file_that_is_never_closed_takes_no_place(tmp_path: Path) -> None:
    file = WholeFile(str(tmp_path / "data"))
    file.write(b"half")
    del file
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["--joined-dictionary", "--thresholdtgt", "2"], "--thresholdtgt 2"),
        (["--joined-dictionary", "--nwordssrc", "9", "--nwordstgt", "8"], "--nwordstgt 8"),
        (["--srcdict", "dict", "--nwordssrc", "9"], "--nwordssrc 9"),
        (["--tgtdict", "dict", "--joined-dictionary", "--thresholdsrc", "3"], "--thresholdsrc 3"),
        (["--only-source", "--tgtdict", "dict"], "--tgtdict dict"),
        (["--align-suffix", "align"], "--align-suffix align"),
        (["--dataset-impl", "fasta"], "--dataset-impl fasta"),
        (["--target-lang", ""], "--target-lang"),
        (["--workers", "0"], "--workers 0"),
    ],
)
def test_options_that_cannot_have_an_effect(more: list[str], named: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=named):
        preprocess(tmp_path, "a\n", *more)


@pytest.mark.parametrize("more", [[], ["--workers", "2"], ["--joined-dictionary"], ["--dataset-impl", "raw"]])
def test_a_language_with_itself(more: list[str], tmp_path: Path) -> None:
    preprocess(tmp_path, "a b\nc\n", "-t", "en", *more)
    names = contents(tmp_path).keys()
    suffixes = [""] if "raw" in more else [".bin", ".idx"]
    assert names == {"dict.en.txt", *(f"train.en-en.en{suffix}" for suffix in suffixes)}


@pytest.mark.parametrize(
    ("content", "more", "named"),
    [
        ("", [], "no word"),
        ("madeupword0000 0\n", [], "no word"),
        ("\ufeffa 2\nb 1\n", [], "line 1"),
        (None, ["--nwordssrc", "4"], "no word"),
    ],
)
def test_a_dictionary_that_knows_no_word(content: str | None, more: list[str], named: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "dict").write_text(content, encoding="utf-8")
        more = ["--srcdict", str(tmp_path / "dict")]
    with pytest.raises(UserError, match=named):
        preprocess(tmp_path, "a b\n", *more)
    assert not list(tmp_path.glob("bin/dict*"))


def test_a_text_without_lines(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"train\.en and .*train\.de have no lines"):
        preprocess(tmp_path, "")
