"""Held-out sentences: nothing of them is in the training text, and which they are depends on themselves alone."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
import split_pairs
from split_pairs import plain, split

Pair = tuple[str, str]


def corpus() -> list[Pair]:
    """Sentences with many translations, and with copies that differ in case and punctuation."""
    chance = random.Random(7)
    words = {
        "de": ["der", "die", "das", "Hund", "Katze", "läuft", "schläft", "nicht", "heute", "hier"],
        "en": ["the", "dog", "cat", "runs", "not"],
    }
    sides = {
        language: [" ".join(chance.choices(there, k=chance.randrange(2, 7))) for _ in range(300)]
        for language, there in words.items()
    }
    pairs = []
    for _ in range(1500):
        source, target = chance.choice(sides["de"]), chance.choice(sides["en"])
        source = chance.choice([source, source.upper() + "!", f"\u201e{source}\u201c."])
        target = chance.choice([target, target.title() + "?", target.replace(" ", ", ")])
        pairs.append((source, target))
    return pairs


def letters(sentence: str) -> str:
    """Another reading of a sentence without case and punctuation."""
    return re.sub(r"\s+", " ", "".join(sign if sign.isalnum() else " " for sign in sentence.lower())).strip()


def test_nothing_held_out_is_in_the_training_text() -> None:
    parts = split(corpus(), 10)
    assert [len(parts[name]) for name in ("test", "valid")] == [10, 10]
    held_out = parts["test"] + parts["valid"]
    for side in (0, 1):
        seen = {letters(pair[side]) for pair in parts["train"]}
        assert len(seen) > 100
        assert not seen & {letters(pair[side]) for pair in held_out}
    targets = [letters(target) for _, target in held_out]
    assert len(set(targets)) == len(targets)
    assert all(len(target.split()) >= split_pairs.SHORTEST for target in targets)


def test_all_pairs_are_used_but_those_too_near() -> None:
    pairs = list(dict.fromkeys(corpus()))
    parts = split(pairs, 10)
    held_out = parts["test"] + parts["valid"]
    assert set(parts["train"]) | set(held_out) <= set(pairs)
    for pair in set(pairs) - set(parts["train"]) - set(held_out):
        assert any(letters(pair[side]) == letters(other[side]) for other in held_out for side in (0, 1))


def test_order_of_lines_changes_nothing() -> None:
    pairs = corpus()
    expected = split(pairs, 10)
    for seed in range(3):
        random.Random(seed).shuffle(pairs)
        assert split(pairs, 10) == expected


def test_more_lines_leave_most_of_the_held_out_ones() -> None:
    """A newer edition of a corpus has other test sentences only where a new one has a smaller hash."""
    pairs = list(dict.fromkeys(corpus()))
    before = {letters(target) for _, target in split(pairs[: len(pairs) * 9 // 10], 10)["test"]}
    after = {letters(target) for _, target in split(pairs, 10)["test"]}
    assert len(before & after) >= 5


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("It\u2019s 5 o'clock \u2013 GO!", "it s 5 o clock go"),
        ("STRASSE_Straße\u2026", "strasse strasse"),
        ("\u4f60\u597d\u3002", "\u4f60\u597d"),
        ("...", ""),
    ],
)
def test_plain(sentence: str, expected: str) -> None:
    assert plain(sentence) == expected


def run(folder: Path, pairs: list[Pair], held_out: int, sides: tuple[int, int] = (0, 0)) -> tuple[int, str]:
    """Status and error; ``sides`` are lines that are missing at the end of each."""
    for side, language in enumerate(("de", "en")):
        lines = [pair[side] for pair in pairs[: len(pairs) - sides[side]]]
        (folder / f"in.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = [sys.executable, split_pairs.__file__, "--pair", str(folder / "in.de"), str(folder / "in.en")]
    command += ["--languages", "de", "en", "--held-out", str(held_out), "--output", str(folder / "split")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.stderr.count("\n") == 1
    return result.returncode, result.stderr


def test_command(tmp_path: Path) -> None:
    pairs = corpus()
    status, said = run(tmp_path, pairs + pairs[:50], 10)
    assert status == 0
    parts = split(list(dict.fromkeys(pairs)), 10)
    assert said == f"{len(parts['train']):,} pairs of train, 10 pairs of valid, 10 pairs of test\n"
    assert len(list((tmp_path / "split").iterdir())) == 6
    for name, part in parts.items():
        for side, language in enumerate(("de", "en")):
            text = (tmp_path / "split" / f"{name}.{language}").read_text(encoding="utf-8")
            assert text.split("\n")[:-1] == [pair[side] for pair in part]


@pytest.mark.parametrize("held_out", [2, 3, 100])
def test_too_few(held_out: int, tmp_path: Path) -> None:
    """Three sentences are long enough to be held out, so there is no second set of two."""
    pairs = [(f"eins zwei drei {n}", f"one two three {n}") for n in range(3)] + [("ja", "yes"), ("nein", "no")]
    status, said = run(tmp_path, pairs, held_out)
    assert (status, said) == (
        1, f"split_pairs: error: 5 pairs are too few to hold out {held_out} sentences twice\n",
    )  # fmt: skip
    assert not (tmp_path / "split").exists()


@pytest.mark.parametrize("sides", [(1, 0), (0, 3)])
def test_sides_of_different_length(sides: tuple[int, int], tmp_path: Path) -> None:
    status, said = run(tmp_path, corpus(), 10, sides)
    assert status == 1
    assert said == f"split_pairs: error: {tmp_path}/in.de and {tmp_path}/in.en have different numbers of lines\n"
    assert not (tmp_path / "split").exists()
