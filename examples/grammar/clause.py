"""The clause that both languages have in common, before it is put into the word order of either."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from lexicon import NOTHING, Case, Modal, Pair, Tense, Verb
from nominals import Nominal

#: What has moved to the front of a clause; "none" is something that has no other place in it.
Argument = Literal["subject", "accusative", "dative", "complement", "none"]
_CASES: dict[str, Case] = {"subject": "nom", "accusative": "acc", "dative": "dat"}


@dataclass(frozen=True)
class Clause:
    """A verb with what belongs to it.

    Attributes:
        complement: what the verb needs besides its objects: a place, a predicate, a prepositional object.
        adjunct: what may be added, such as a companion.
        front: words at the front.
        moved: what is missing in its usual place because it is at the front.
    """

    subject: Nominal
    verb: Verb
    tense: Tense = "present"
    modal: Modal | None = None
    dative: Nominal | None = None
    accusative: Nominal | None = None
    complement: Pair = NOTHING
    adjunct: Pair = NOTHING
    frequency: Pair = NOTHING
    time: Pair = NOTHING
    negated: bool = False
    front: Pair = NOTHING
    moved: Argument = "none"

    @property
    def is_third_singular(self) -> bool:
        """Return whether an English verb has its *s*."""
        return self.subject.person == 3 and self.subject.number == "sg"

    def with_front(self, words: Pair, moved: Argument = "none") -> Clause:
        """Return the clause with words at its front."""
        return replace(self, front=words, moved=moved)

    def with_pronoun_in_front(self, nominal: Nominal, moved: Argument) -> Clause:
        """Return the clause with its relative or interrogative pronoun or phrase at its front."""
        case = _CASES[moved]
        return self.with_front(Pair(nominal.english(case), nominal.german(case)), moved)


def sentence(english: str, german: str, mark: str = ".") -> Pair:
    """Return a pair as it is spelled in running text; every comma is a word of its own until then."""
    return Pair(_spelled(english, mark), _spelled(german, mark))


def _spelled(words: str, mark: str) -> str:
    spelled: list[str] = []
    for word in words.split():
        if word != ",":
            spelled.append(word)
        elif not spelled[-1].endswith(","):  # where two clauses end together, one comma serves both
            spelled[-1] += ","
    text = " ".join(spelled).rstrip(",") + mark
    return text[0].upper() + text[1:]
