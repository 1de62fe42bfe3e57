"""Reading translations: fairseq's output in any order, and what is refused."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fairseq_compat import UserError
from fairseq_depthwise.evaluation.translations import read_translations


def write(folder: Path, text: str) -> str:
    path = folder / "out.txt"
    path.write_bytes(text.encode())
    return str(path)


def generated(*sentences: tuple[str, str, str, str], numbers: list[int] | None = None) -> str:
    """fairseq-generate's output: of every sentence the source, the reference, the H- text and the D- text."""
    lines = ["2024-01-01 | INFO | fairseq.tasks.translation | [src] dictionary: 12 types"]
    for number in numbers or range(len(sentences)):
        source, target, tokens, text = sentences[number]
        lines += [f"S-{number}\t{source}", f"T-{number}\t{target}"]
        lines += [f"H-{number}\t-0.5123\t{tokens}", f"D-{number}\t-0.5123\t{text}", f"P-{number}\t-0.5 -0.4"]
    return "\n".join([*lines, "Generate test with beam=5: BLEU4 = 12.00", ""])


WORDS = tuple((f"src {n}", f"tgt {n}", f"tok {n} .", f"tok {n}.") for n in range(12))


@pytest.mark.parametrize("line", ["D-1 is a street", "T-34\ttanks", "H-2\ttwo atoms", "P-1\t-0.5", "XD-1\t-0.5\tx"])
def test_plain_text_that_looks_a_little_like_it(line: str, tmp_path: Path) -> None:
    read = read_translations(write(tmp_path, f"{line}\nb\n"))
    assert (read.sentences, read.lines, read.targets) == ([line, "b"], None, None)


def test_output_is_sorted_by_number(tmp_path: Path) -> None:
    numbers = list(range(12))
    random.Random(5).shuffle(numbers)
    read = read_translations(write(tmp_path, generated(*WORDS, numbers=numbers)))
    assert read.sentences == [f"tok {n}." for n in range(12)]
    assert read.targets == [f"tgt {n}" for n in range(12)]
    assert read.lines == "D-"


def test_the_first_of_several_hypotheses(tmp_path: Path) -> None:
    lines = []
    for number in (1, 0):
        lines += [f"S-{number}\ts", f"T-{number}\tt"]
        for rank in (1, 2):
            lines += [f"H-{number}\t-{rank}\t{number} h{rank}", f"D-{number}\t-{rank}\t{number} d{rank}"]
    path = write(tmp_path, "\n".join(lines))
    assert read_translations(path).sentences == ["0 d1", "1 d1"]


def test_empty_translations_and_tabs_within(tmp_path: Path) -> None:
    path = write(tmp_path, "H-1\t-1e-05\t\nD-1\t-1e-05\t\nH-0\tnan\ta\tb\nD-0\tnan\ta\tb\nH-2\t-inf\nD-2\t-inf\n")
    assert read_translations(path).sentences == ["a\tb", "", ""]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("D-0\t-1\ta\nD-99999999999\t-1\tb\n", "no D- line"),
        ("T-0\ta\nD-0\t-1\ta\nD-1\t-1\tb\n", "no T- line"),
        ("D-0\t-1\ta\nD-1\t-1\tb\nD-0\t-1\ta\n", "D-0 twice"),
    ],
)
def test_missing_and_repeated_sentences(text: str, named: str, tmp_path: Path) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UserError, match=f"{path} .*{named}"):
        read_translations(path)


@pytest.mark.parametrize(
    ("tokens", "text", "taken", "targets"),
    [
        ("ein Haus .", "ein Haus .", "ein Haus .", True),  # neither --bpe nor --tokenizer
        ("ein Ha@@ us .", "ein Ha@@ us .", "ein Ha@@ us .", True),  # nor --post-process
        ("ein Haus .", "ein Haus.", "ein Haus .", False),  # --post-process and --tokenizer
        ("ein Ha@@ us .", "ein Haus.", "ein Haus .", False),  # --tokenizer alone
        ("ein Ha@@ us .", "ein Haus .", "ein Haus .", True),  # --bpe alone
        ("ein Haus@@", "ein Haus", "ein Haus", True),
        ("\u2581ein \u2581Ha us \u2581 .", "ein Haus .", "ein Haus .", True),
        ("\u2581ein \u2581Ha us \u2581 .", "ein Haus.", "ein Haus .", False),
    ],
)
def test_tokens_are_taken_where_they_are(tokens: str, text: str, taken: str, targets: bool, tmp_path: Path) -> None:
    path = write(tmp_path, generated(("s", "t", tokens, text)))
    read = read_translations(path, tokenized=True)
    assert (read.sentences, read.lines, read.targets) == ([taken], "H-", ["t"] if targets else None)
    detokenized = read_translations(path)
    assert (detokenized.sentences, detokenized.lines, detokenized.targets) == ([text], "D-", ["t"])
