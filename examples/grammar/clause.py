"""The abstract clause, common to both languages, and the complements it can contain."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from declension import INDEFINITE
from lexicon import Adjective, Adverbial, Case, Gender, Modal, Noun, Number, Preposition, Tense, Verb
from modifiers import english_numeral, german_numeral
from noun_phrase import Nominal, NounPhrase
from pronouns import RelativePronoun


class Complement(Protocol):
    """A non-nominal part of the predicate."""

    def english(self) -> str:
        """Return the English words."""

    def german(self) -> str:
        """Return the German words."""


_CONTRACTIONS = {
    ("in", "dem"): "im",
    ("in", "das"): "ins",
    ("an", "dem"): "am",
    ("an", "das"): "ans",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
    ("von", "dem"): "vom",
}


@dataclass(frozen=True)
class PrepositionalPhrase:
    """A preposition with its nominal; the preposition decides the German case."""

    preposition: Preposition
    nominal: Nominal

    def english(self) -> str:
        """Return the English phrase."""
        if isinstance(self.nominal, RelativePronoun):
            return f"{self.preposition.english} {self.nominal.english_after_preposition()}"
        return f"{self.preposition.english} {self.nominal.english(Case.ACCUSATIVE)}"

    def german(self) -> str:
        """Return the German phrase, contracting preposition and definite article."""
        nominal = self.nominal.german(self.preposition.case)
        if isinstance(self.nominal, NounPhrase) and self.nominal.begins_with_definite_article:
            article, rest = nominal.split(" ", 1)
            contraction = _CONTRACTIONS.get((self.preposition.german, article))
            if contraction:
                return f"{contraction} {rest}"
        return f"{self.preposition.german} {nominal}"


@dataclass(frozen=True)
class PredicateAdjective:
    """An uninflected adjective after the copula."""

    adjective: Adjective

    def english(self) -> str:
        """Return the English adjective."""
        return self.adjective.english

    def german(self) -> str:
        """Return the German adjective without an ending."""
        return self.adjective.german


@dataclass(frozen=True)
class Comparison:
    """*older than* or *as old as* with the standard of comparison in the nominative."""

    adjective: Adjective
    standard: Nominal
    equal: bool

    def english(self) -> str:
        """Return the English comparison."""
        standard = self.standard.english(Case.ACCUSATIVE)
        if self.equal:
            return f"as {self.adjective.english} as {standard}"
        return f"{self.adjective.english_comparative} than {standard}"

    def german(self) -> str:
        """Return the German comparison."""
        standard = self.standard.german(Case.NOMINATIVE)
        if self.equal:
            return f"so {self.adjective.german} wie {standard}"
        return f"{self.adjective.german_comparative} als {standard}"


@dataclass(frozen=True)
class PredicateProfession:
    """A profession as predicate: German has no article but shows the sex of the subject."""

    noun: Noun
    gender: Gender

    def english(self) -> str:
        """Return the profession with its indefinite article."""
        return NounPhrase(self.noun, Number.SINGULAR, INDEFINITE).english(Case.NOMINATIVE)

    def german(self) -> str:
        """Return the bare masculine or feminine noun."""
        return self.noun.feminine_form if self.gender is Gender.FEMININE else self.noun.german


@dataclass(frozen=True)
class Age:
    """An age in years."""

    years: int

    def english(self) -> str:
        """Return, for example, *twelve years old*."""
        return f"{english_numeral(self.years)} years old"

    def german(self) -> str:
        """Return, for example, *zwölf Jahre alt*."""
        return f"{german_numeral(self.years)} Jahre alt"


@dataclass(frozen=True)
class FixedComplement:
    """A fixed phrase, such as *at home*."""

    english_words: str
    german_words: str

    def english(self) -> str:
        """Return the English words."""
        return self.english_words

    def german(self) -> str:
        """Return the German words."""
        return self.german_words


class Argument(Enum):
    """The part of a clause that has moved to its front."""

    SUBJECT = "subject"
    ACCUSATIVE = "accusative object"
    DATIVE = "dative object"
    COMPLEMENT = "complement"
    NONE = "something that has no other place in the clause"


@dataclass(frozen=True)
class Fronted:
    """Words at the front of a clause and the argument whose usual place they leave empty."""

    english: str
    german: str
    argument: Argument


@dataclass(frozen=True)
class Clause:
    """A clause before it is put into the word order of a language."""

    subject: Nominal
    verb: Verb
    tense: Tense = Tense.PRESENT
    modal: Modal | None = None
    dative: Nominal | None = None
    accusative: Nominal | None = None
    complement: Complement | None = None
    adjunct: Complement | None = None
    frequency: Adverbial | None = None
    time: Adverbial | None = None
    negated: bool = False
    fronted: Fronted | None = None

    def moves(self, argument: Argument) -> bool:
        """Tell whether ``argument`` has left its usual place."""
        return self.fronted is not None and self.fronted.argument is argument

    @property
    def subject_is_third_singular(self) -> bool:
        """Whether the English verb takes its *-s*."""
        return self.subject.person == 3 and self.subject.number is Number.SINGULAR
