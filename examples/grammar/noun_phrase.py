"""Noun phrases: lexical noun phrases, proper names and coordinations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from declension import (
    DEFINITE,
    DEMONSTRATIVE,
    INDEFINITE,
    NO_DETERMINER,
    POSSESSIVES,
    Declension,
    Determiner,
    attributive_form,
)
from lexicon import Adjective, Case, Gender, Noun, NounClass, Number
from modifiers import english_numeral, german_numeral


def join_words(*words: str) -> str:
    """Join the non-empty ``words`` with single spaces."""
    return " ".join(word for word in words if word)


class Nominal(Protocol):
    """Whatever can be the subject or an object."""

    @property
    def person(self) -> int:
        """Grammatical person: 1 or 3."""

    @property
    def number(self) -> Number:
        """Grammatical number, with which the verb agrees."""

    @property
    def is_pronoun(self) -> bool:
        """Whether the nominal is a pronoun, which stands early in a German clause."""

    def english(self, case: Case) -> str:
        """Return the English form."""

    def german(self, case: Case) -> str:
        """Return the German form in ``case``."""


class Postmodifier(Protocol):
    """Something that follows the noun, such as a relative clause."""

    def english(self) -> str:
        """Return the English words."""

    def german(self) -> str:
        """Return the German words, with commas as separate words."""


@dataclass(frozen=True)
class Name:
    """A proper name, which is the same in both languages."""

    form: str
    gender: Gender
    person: int = 3
    number: Number = Number.SINGULAR
    is_pronoun: bool = False

    def english(self, case: Case) -> str:
        """Return the name, with the possessive marker in the genitive."""
        return self.form + "'s" if case is Case.GENITIVE else self.form

    def german(self, case: Case) -> str:
        """Return the name; German marks the genitive without an apostrophe."""
        return self.form + "s" if case is Case.GENITIVE else self.form


@dataclass(frozen=True)
class NounPhrase:
    """A noun with everything that agrees with it.

    ``possessor`` is a singular noun phrase or a name; English puts it in place of the
    determiner. In German a name does the same, while a noun phrase follows in the genitive.
    """

    noun: Noun
    number: Number
    determiner: Determiner = NO_DETERMINER
    adjective: Adjective | None = None
    numeral: int | None = None
    possessor: NounPhrase | Name | None = None
    of_possessor: bool = False
    postmodifier: Postmodifier | None = None
    person: int = 3
    is_pronoun: bool = False

    @property
    def gender(self) -> Gender:
        """Grammatical gender of the German noun."""
        return self.noun.gender

    @property
    def begins_with_definite_article(self) -> bool:
        """Whether a German preposition can contract with the article of this phrase."""
        if isinstance(self.possessor, Name) or self.numeral is not None:
            return False
        has_article = self.determiner is DEFINITE or self.possessor is not None
        return has_article and self.number is Number.SINGULAR and self.postmodifier is None

    @property
    def is_indefinite(self) -> bool:
        """Whether negation turns the German determiner into *kein*."""
        bare = self.determiner is NO_DETERMINER and self.numeral is None and self.possessor is None
        return bare or self.determiner is INDEFINITE

    @property
    def is_definite(self) -> bool:
        """Whether the phrase refers to something known."""
        return self.possessor is not None or self.determiner in (DEFINITE, DEMONSTRATIVE, *POSSESSIVES)

    def english(self, case: Case) -> str:
        """Return the English phrase; only the genitive of a possessor differs."""
        inner = join_words(
            english_numeral(self.numeral) if self.numeral is not None else "",
            self.adjective.english if self.adjective else "",
            self.noun.english_form(self.number),
        )
        if self.possessor is None:
            phrase = join_words(_english_determiner(self.determiner.english(self.number), inner), inner)
        elif self.of_possessor:
            phrase = join_words("the", inner, "of", self.possessor.english(Case.ACCUSATIVE))
        else:
            phrase = join_words(self.possessor.english(Case.GENITIVE), inner)
        if case is Case.GENITIVE:
            return phrase + "'s"
        return join_words(phrase, self.postmodifier.english() if self.postmodifier else "")

    def german(self, case: Case) -> str:
        """Return the German phrase in ``case``."""
        determiner, declension, genitive = self._german_determination(case)
        adjective = ""
        if self.adjective:
            adjective = attributive_form(self.adjective, declension, case, self.gender, self.number)
        return join_words(
            determiner,
            german_numeral(self.numeral) if self.numeral is not None else "",
            adjective,
            self.noun.german_form(case, self.number),
            genitive,
            self.postmodifier.german() if self.postmodifier else "",
        )

    def _german_determination(self, case: Case) -> tuple[str, Declension, str]:
        """Return the determiner, the declension it calls for, and a following genitive."""
        if isinstance(self.possessor, Name):
            return self.possessor.german(Case.GENITIVE), Declension.STRONG, ""
        determiner = self.determiner if self.possessor is None else DEFINITE
        genitive = self.possessor.german(Case.GENITIVE) if self.possessor else ""
        return determiner.german(case, self.gender, self.number), determiner.declension, genitive

    def belongs_to(self, *classes: NounClass) -> bool:
        """Tell whether the head noun is in any of ``classes``."""
        return self.noun.belongs_to(classes)


@dataclass(frozen=True)
class Coordination:
    """Two nominals joined by *and*; the whole is plural."""

    first: NounPhrase | Name
    second: NounPhrase | Name
    person: int = 3
    number: Number = Number.PLURAL
    is_pronoun: bool = False

    def english(self, case: Case) -> str:
        """Return the English coordination."""
        return f"{self.first.english(case)} and {self.second.english(case)}"

    def german(self, case: Case) -> str:
        """Return the German coordination with both members in ``case``."""
        return f"{self.first.german(case)} und {self.second.german(case)}"


def _english_determiner(determiner: str, following: str) -> str:
    # No word of the lexicon begins with a vowel letter that sounds as a consonant, or a mute h.
    if determiner == "a" and following[0] in "aeiou":
        return "an"
    return determiner
