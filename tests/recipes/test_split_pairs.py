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


def run(folder: Path, sides: tuple[list[str], list[str]], held_out: int) -> tuple[int, str]:
    """Return status and error."""
    for language, lines in zip(("de", "en"), sides, strict=True):
        (folder / f"in.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = [sys.executable, split_pairs.__file__, "--pair", str(folder / "in.de"), str(folder / "in.en")]
    command += ["--languages", "de", "en", "--held-out", str(held_out), "--output", str(folder / "split")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.stderr.count("\n") == 1
    return result.returncode, result.stderr


def sides_of(pairs: list[Pair]) -> tuple[list[str], list[str]]:
    return [source for source, _ in pairs], [target for _, target in pairs]


def test_command(tmp_path: Path) -> None:
    pairs = corpus()
    assert run(tmp_path, sides_of(pairs + pairs[:50]), 10)[0] == 0
    for name, part in split(list(dict.fromkeys(pairs)), 10).items():
        for language, side in zip(("de", "en"), sides_of(part), strict=True):
            assert (tmp_path / "split" / f"{name}.{language}").read_text(encoding="utf-8").split("\n")[:-1] == side


@pytest.mark.parametrize(
    ("english", "held_out", "message"),
    [
        # Three sentences are long enough to be held out, so there is no second set of two.
        ([*(f"one two three {n}" for n in range(3)), "yes", "no"], 2, "5 pairs are too few to hold out 2 sentences"),
        (["one two three 1"], 1, "have different numbers of lines"),
    ],
)
def test_what_cannot_be_split(english: list[str], held_out: int, message: str, tmp_path: Path) -> None:
    german = [*(f"eins zwei drei {n}" for n in range(3)), "ja", "nein"]
    status, error = run(tmp_path, (german, english), held_out)
    assert status == 1
    assert message in error
    assert not (tmp_path / "split").exists()
