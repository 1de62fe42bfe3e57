"""``fairseq-preprocess``: which texts it takes, and what becomes of their lines."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from fairseq.data import Dictionary
from fairseq.data.data_utils import load_indexed_dataset

RunCommand = Callable[..., CompletedProcess[str]]

SOURCE = "\ufeffa1 b\na2 b\rc\r\n\na4 \u00e4\u2028d\x0c e\na5".encode()
TARGET = b"x1 y\nx2 y\n\nx4 y\rz\nx5\n"
WORDS = {"en": [["a1", "b"], ["a2", "b", "c"], [], ["a4", "\u00e4", "d", "e"], ["a5"]]}
WORDS["de"] = [["x1", "y"], ["x2", "y"], [], ["x4", "y", "z"], ["x5"]]


def texts(folder: Path, prefix: str = "train", **changed: bytes) -> list[object]:
    """Write a source and a target; return the options of a command that reads them."""
    for language, text in {"en": SOURCE, "de": TARGET, **changed}.items():
        (folder / f"{prefix}.{language}").write_bytes(text)
    command = ["fairseq-preprocess", "-s", "en", "-t", "de", "--destdir", folder / "bin"]
    return [*command, f"--{prefix}pref", folder / prefix]


@pytest.mark.parametrize("more", [(), ("--workers", 4), ("--dataset-impl", "raw")], ids=["one", "workers", "raw"])
def test_lines_end_at_line_feeds_only(more: tuple[object, ...], run_command: RunCommand, tmp_path: Path) -> None:
    run_command(*texts(tmp_path), "--joined-dictionary", *more)
    dictionary = Dictionary.load(str(tmp_path / "bin/dict.en.txt"))
    for language, lines in WORDS.items():
        impl = "raw" if "raw" in more else "mmap"
        data = load_indexed_dataset(str(tmp_path / f"bin/train.en-de.{language}"), dictionary, impl)
        assert [dictionary.string(sentence).split() for sentence in data] == lines


def test_a_text_that_is_not_utf8(refusal: Callable[..., str], tmp_path: Path) -> None:
    command = texts(tmp_path, de=TARGET[:-2] + b"\xe9\n")
    assert f"{tmp_path}/train.de is not UTF-8: line 5 has the byte 0xe9" in refusal(*command, "--workers", 3)


@pytest.mark.parametrize("part", ["train", "valid", "test"])
def test_a_source_and_a_target_of_different_length(part: str, refusal: Callable[..., str], tmp_path: Path) -> None:
    command = [*texts(tmp_path), *texts(tmp_path, part, de=TARGET + b"x6\n")[-2:]]
    sentence = refusal(*command, "--workers", 2)
    assert f"{part}.en has 5" in sentence
    assert f"{part}.de has 6" in sentence
    assert not (tmp_path / "bin").exists()


def test_a_source_in_another_encoding(refusal: Callable[..., str], tmp_path: Path) -> None:
    command = texts(tmp_path, en=SOURCE.decode().encode("utf-16"))
    assert f"{tmp_path}/train.en is not UTF-8: line 1 has the byte 0xff" in refusal(*command)


def test_alignments_of_another_text(refusal: Callable[..., str], tmp_path: Path) -> None:
    command = texts(tmp_path, align=b"0-0\n")
    assert "train.align has 1" in refusal(*command, "--align-suffix", "align")
    assert "train.align has 1" in refusal(*command, "--alignfile", tmp_path / "train.align")


@pytest.mark.parametrize("pair", ["0-2", "2-0", "0", "0-0-0", "a-0", "-1-0"])
def test_alignments_of_words_that_are_not_there(pair: str, refusal: Callable[..., str], tmp_path: Path) -> None:
    command = texts(tmp_path, align=f"0-0\n2-1 {pair if pair != '2-0' else '3-0'}\n\n\n\n".encode())
    for option in ("--align-suffix", "--alignfile"):
        sentence = refusal(*command, option, tmp_path / "train.align" if option == "--alignfile" else "align")
        assert "train.align has '" in sentence
        assert "in line 2" in sentence
    assert not (tmp_path / "bin").exists()


def test_alignments_of_several_validation_sets(run_command: RunCommand, tmp_path: Path) -> None:
    command = texts(tmp_path, align=b"0-0\n\n\n1-2\n0-0\n")
    for language in ("en", "de", "align"):
        shutil.copy(tmp_path / f"train.{language}", tmp_path / f"more.{language}")
    prefixes = f"{tmp_path}/train,{tmp_path}/more"
    run_command(*command, "--validpref", prefixes, "--align-suffix", "align")
    for name in ("train", "valid", "valid1"):
        data = load_indexed_dataset(str(tmp_path / f"bin/{name}.align.en-de"))
        assert [sentence.tolist() for sentence in data] == [[0, 0], [], [], [1, 2], [0, 0]]


def test_the_other_side_of_a_text_without_one(run_command: RunCommand, tmp_path: Path) -> None:
    run_command(*texts(tmp_path, de=b""), "--only-source")
    assert (tmp_path / "bin/train.en-de.en.idx").is_file()


def test_options_that_do_not_fit(run_command: RunCommand, refusal: Callable[..., str], tmp_path: Path) -> None:
    command = texts(tmp_path)
    assert "--trainpref" in refusal(*command[:-2])
    run_command(*command, "--dict-only")
    sentence = refusal(*command)
    assert f"{tmp_path}/bin/dict.en.txt" in sentence
    assert "--srcdict" in sentence


# Scores.


def scored(folder: Path, system: bytes, *more: str) -> list[object]:
    """A command that scores translations."""
    (folder / "system").write_bytes(system)
    (folder / "reference").write_bytes("the cat sat on a mat\ra\u2028b\r\nThe dog ran after the cat\n".encode())
    return ["fairseq-score", "--sys", folder / "system", "--ref", folder / "reference", *more]


@pytest.mark.parametrize(
    ("more", "expected"),
    [((), "BLEU4 = 90.48"), (("--ignore-case",), "BLEU4 = 100.00"), (("--sacrebleu",), "BLEU = 90.48"),
     (("--sentence-bleu",), "1 BLEU4 = 80.34")],
)  # fmt: skip
def test_scores_of_lines(
    more: tuple[str, ...], expected: str, run_command: RunCommand, refusal: Callable[..., str], tmp_path: Path
) -> None:
    system = b"the cat sat on a mat a b\nthe dog ran after the cat"
    output = run_command(*scored(tmp_path, system, *more)).stdout
    assert expected in output, output
    assert "system has 1 lines" in refusal(*scored(tmp_path, system.partition(b"\n")[0], *more))
