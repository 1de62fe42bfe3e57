"""Personal, relative and interrogative pronouns.

English *it* and *you* are left out as pronouns because their German form depends on what the
English sentence does not say: the gender of the thing, and how well the speakers know each other.
"""

from __future__ import annotations

from dataclasses import dataclass

from declension import relative_pronoun_form
from lexicon import Case, Gender, NounClass, Number
from noun_phrase import NounPhrase


@dataclass(frozen=True)
class PersonalPronoun:
    """A personal pronoun with its forms in both languages."""

    person: int
    number: Number
    english_subject: str
    english_object: str
    german_nominative: str
    german_accusative: str
    german_dative: str
    german_reflexive: str
    gender: Gender | None = None
    is_pronoun: bool = True

    def english(self, case: Case) -> str:
        """Return the subject form in the nominative, else the object form."""
        return self.english_subject if case is Case.NOMINATIVE else self.english_object

    def german(self, case: Case) -> str:
        """Return the form in ``case``; personal pronouns are not used in the genitive."""
        return {
            Case.NOMINATIVE: self.german_nominative,
            Case.ACCUSATIVE: self.german_accusative,
            Case.DATIVE: self.german_dative,
        }[case]


_SG, _PL = Number.SINGULAR, Number.PLURAL

I_PRONOUN = PersonalPronoun(1, _SG, "I", "me", "ich", "mich", "mir", "mich")
HE = PersonalPronoun(3, _SG, "he", "him", "er", "ihn", "ihm", "sich", Gender.MASCULINE)
SHE = PersonalPronoun(3, _SG, "she", "her", "sie", "sie", "ihr", "sich", Gender.FEMININE)
WE = PersonalPronoun(1, _PL, "we", "us", "wir", "uns", "uns", "uns")
THEY = PersonalPronoun(3, _PL, "they", "them", "sie", "sie", "ihnen", "sich")
PERSONAL_PRONOUNS = (HE, SHE, WE, THEY, I_PRONOUN)

# The subject of weather verbs; it never refers to a thing.
EXPLETIVE_IT = PersonalPronoun(3, _SG, "it", "it", "es", "es", "ihm", "sich", Gender.NEUTER)


@dataclass(frozen=True)
class RelativePronoun:
    """A relative pronoun: gender and number come from the antecedent, case from its clause."""

    gender: Gender
    number: Number
    antecedent_is_human: bool
    person: int = 3
    is_pronoun: bool = True

    @classmethod
    def referring_to(cls, antecedent: NounPhrase) -> RelativePronoun:
        """Return the relative pronoun that agrees with ``antecedent``."""
        return cls(antecedent.gender, antecedent.number, antecedent.belongs_to(NounClass.HUMAN))

    def english(self, case: Case) -> str:
        """Return *who* or *whom* for people and *that* otherwise."""
        if case is Case.GENITIVE:
            return "whose"
        if not self.antecedent_is_human:
            return "that"
        return "who" if case is Case.NOMINATIVE else "whom"

    def english_after_preposition(self) -> str:
        """Return the form after a preposition, where *that* is impossible."""
        return "whom" if self.antecedent_is_human else "which"

    def german(self, case: Case) -> str:
        """Return the German form in ``case``."""
        return relative_pronoun_form(case, self.gender, self.number)


@dataclass(frozen=True)
class InterrogativePronoun:
    """*Who* or *what* as the questioned argument of a clause; always singular."""

    english_subject: str
    english_object: str
    german_nominative: str
    german_accusative: str
    german_dative: str
    person: int = 3
    number: Number = Number.SINGULAR
    is_pronoun: bool = True

    def english(self, case: Case) -> str:
        """Return the English form."""
        return self.english_subject if case is Case.NOMINATIVE else self.english_object

    def german(self, case: Case) -> str:
        """Return the German form in ``case``."""
        return {
            Case.NOMINATIVE: self.german_nominative,
            Case.ACCUSATIVE: self.german_accusative,
            Case.DATIVE: self.german_dative,
        }[case]


WHO = InterrogativePronoun("who", "whom", "wer", "wen", "wem")
WHAT = InterrogativePronoun("what", "what", "was", "was", "was")
