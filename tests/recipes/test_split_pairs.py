"""Held-out sentences: nothing of them is in the training text, and which they are depends on themselves alone."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
import split_pairs
from recipe_runs import lines
from split_pairs import split

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
    return list(dict.fromkeys(pairs))


def letters(sentence: str) -> str:
    """Another reading of a sentence without case and punctuation."""
    return re.sub(r"\s+", " ", "".join(sign if sign.isalnum() else " " for sign in sentence.lower())).strip()


def test_nothing_held_out_is_in_the_training_text_and_all_else_is() -> None:
    pairs = corpus()
    parts = split(pairs, 10)
    assert [len(parts[name]) for name in ("test", "valid")] == [10, 10]
    held_out = parts["test"] + parts["valid"]
    near = {letters(sentence) for pair in held_out for sentence in pair}
    assert len(parts["train"]) > 100
    assert set(parts["train"]) == {pair for pair in pairs if not near & {letters(pair[0]), letters(pair[1])}}
    targets = [letters(target) for _, target in held_out]
    assert len(set(targets)) == len(targets)
    assert all(len(target.split()) >= split_pairs.SHORTEST for target in targets)


def test_order_of_lines_changes_nothing() -> None:
    pairs = corpus()
    expected = split(pairs, 10)
    random.Random(0).shuffle(pairs)
    assert split(pairs, 10) == expected


@pytest.mark.parametrize(("held_out", "status"), [(10, 0), (1000, 1)])
def test_command(held_out: int, status: int, tmp_path: Path) -> None:
    pairs = corpus()
    for side, language in enumerate(("de", "en")):
        text = "".join(f"{pair[side]}\n" for pair in pairs + pairs[:50])
        (tmp_path / f"in.{language}").write_text(text, encoding="utf-8")
    command = [sys.executable, split_pairs.__file__, "--pair", str(tmp_path / "in.de"), str(tmp_path / "in.en")]
    command += ["--languages", "de", "en", "--held-out", str(held_out), "--output", str(tmp_path / "split")]
    assert subprocess.run(command, timeout=60).returncode == status
    assert (tmp_path / "split").exists() == (status == 0)
    for name, part in split(pairs, held_out).items() if status == 0 else ():
        for side, language in enumerate(("de", "en")):
            assert lines(tmp_path / "split" / f"{name}.{language}") == [pair[side] for pair in part]
