"""A finished pair of sentences and its spelling: capitals, commas and end marks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SentencePair:
    """An English sentence and its German translation, spelled as in running text."""

    english: str
    german: str


def sentence_pair(english: str, german: str, mark: str = ".") -> SentencePair:
    """Spell a pair of linearised sentences, in which every comma is a word of its own."""
    return SentencePair(_spell(english, mark), _spell(german, mark))


def _spell(words: str, mark: str) -> str:
    spelled: list[str] = []
    for word in words.split():
        if word != ",":
            spelled.append(word)
        elif not spelled[-1].endswith(","):
            # Where two clauses end together, one comma serves both.
            spelled[-1] += ","
    text = " ".join(spelled).rstrip(",") + mark
    return text[0].upper() + text[1:]
