"""Held-out sentences: nothing of them is in the training text, and which they are depends on themselves alone."""

from __future__ import annotations

import random
import re

from split_pairs import SHORTEST, split

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
    assert all(len(target.split()) >= SHORTEST for target in targets)


def test_order_of_lines_changes_nothing() -> None:
    pairs = corpus()
    expected = split(pairs, 10)
    random.Random(0).shuffle(pairs)
    assert split(pairs, 10) == expected
