"""What can be a subject or an object: names, pronouns, noun phrases and coordinations; and prepositional phrases."""

from __future__ import annotations

from dataclasses import dataclass

import declension
from declension import DEFINITE, INDEFINITE, NO_DETERMINER, POSSESSIVES, Determiner
from lexicon import NOTHING, Adjective, Case, Gender, Noun, Number, Pair, Preposition, numeral


def join(*words: str) -> str:
    """Join words with single spaces, without those that are empty."""
    return " ".join(word for word in words if word)


@dataclass(frozen=True)
class Name:
    """A proper name, which is the same in both languages."""

    form: str
    gender: Gender
    person: int = 3
    number: Number = "sg"
    is_pronoun: bool = False

    def english(self, case: Case) -> str:
        """Return the name, with *'s* in the genitive."""
        return self.form + "'s" if case == "gen" else self.form

    def german(self, case: Case) -> str:
        """Return the name, with *s* in the genitive."""
        return self.form + "s" if case == "gen" else self.form


@dataclass(frozen=True)
class Pronoun:
    """A personal, relative or interrogative pronoun.

    English *it* for a thing and *you* are left out: their German form depends on what the English does not say.

    Attributes:
        english_forms: subject, object, genitive, and the form after a preposition; or the first two alone.
        german_forms: nominative, accusative, dative and genitive, as far as they are used.
        gender: of a person.
    """

    english_forms: str
    german_forms: str
    person: int = 3
    number: Number = "sg"
    gender: Gender | None = None
    is_pronoun: bool = True

    def english(self, case: Case) -> str:
        return self.english_forms.split()[{"nom": 0, "gen": 2}.get(case, 1)]

    def english_after_preposition(self) -> str:
        """Return the English form after a preposition, where *that* is impossible."""
        return self.english_forms.split()[-1]

    def german(self, case: Case) -> str:
        return self.german_forms.split()[("nom", "acc", "dat", "gen").index(case)]


I_PRONOUN = Pronoun("I me", "ich mich mir", 1)
HE = Pronoun("he him", "er ihn ihm", gender="m")
SHE = Pronoun("she her", "sie sie ihr", gender="f")
WE = Pronoun("we us", "wir uns uns", 1, "pl")
THEY = Pronoun("they them", "sie sie ihnen", number="pl")
PERSONAL_PRONOUNS = (HE, SHE, WE, THEY, I_PRONOUN)
#: The subject of weather verbs; it never refers to a thing.
EXPLETIVE_IT = Pronoun("it it", "es es ihm")
WHO = Pronoun("who whom", "wer wen wem")
WHAT = Pronoun("what what", "was was was")


@dataclass(frozen=True)
class NounPhrase:
    """A noun with everything that agrees with it.

    English puts a ``possessor`` in place of the determiner, or after *of*. So does German with a name or a relative
    pronoun, while a noun phrase follows in the genitive. ``postmodifier`` is a relative clause.
    """

    noun: Noun
    number: Number = "sg"
    determiner: Determiner = NO_DETERMINER
    adjective: Adjective | None = None
    numeral: int | None = None
    possessor: NounPhrase | Name | Pronoun | None = None
    of_possessor: bool = False
    postmodifier: Pair = NOTHING
    person: int = 3
    is_pronoun: bool = False

    @property
    def contracts(self) -> bool:
        """Return whether a German preposition contracts with the article: *im Haus*."""
        has_article = self.determiner is DEFINITE or isinstance(self.possessor, NounPhrase)
        return has_article and self.number == "sg" and self.numeral is None and not self.postmodifier

    @property
    def is_indefinite(self) -> bool:
        """Return whether negation turns the German determiner into *kein*."""
        bare = self.determiner is NO_DETERMINER and self.numeral is None and self.possessor is None
        return bare or self.determiner is INDEFINITE

    @property
    def is_definite(self) -> bool:
        """Return whether the phrase refers to something known."""
        return self.possessor is not None or self.determiner in (DEFINITE, declension.DEMONSTRATIVE, *POSSESSIVES)

    def belongs_to(self, *classes: str) -> bool:
        """Return whether the noun is in any of ``classes``."""
        return self.noun.belongs_to(*classes)

    def english(self, case: Case) -> str:
        """Return the English phrase; only the genitive of a possessor differs."""
        inner = join(
            numeral(self.numeral).english if self.numeral else "",
            self.adjective.english if self.adjective else "",
            self.noun.english_form(self.number),
        )
        determiner = self.determiner.english(self.number)
        if self.possessor and self.of_possessor:
            phrase = f"the {inner} of {self.possessor.english('acc')}"
        elif self.possessor:
            phrase = f"{self.possessor.english('gen')} {inner}"
        else:
            # No word here begins with a vowel letter that is spoken as a consonant, or with a mute h.
            phrase = join("an" if determiner == "a" and inner[0] in "aeiou" else determiner, inner)
        if case == "gen":
            return phrase + "'s"
        return join(phrase, self.postmodifier.english)

    def german(self, case: Case) -> str:
        gender, number, genitive = self.noun.gender, self.number, ""
        determiner = self.determiner
        if isinstance(self.possessor, NounPhrase):
            determiner, genitive = DEFINITE, self.possessor.german("gen")
        first, endings = determiner.german(case, gender, number), determiner.declension
        if isinstance(self.possessor, Name | Pronoun):
            first, endings = self.possessor.german("gen"), "strong"
        return join(
            first,
            numeral(self.numeral).german if self.numeral else "",
            declension.attributive(self.adjective, endings, case, gender, number) if self.adjective else "",
            self.noun.german_form(case, number),
            genitive,
            self.postmodifier.german,
        )


@dataclass(frozen=True)
class Coordination:
    """Two nominals joined by *and*; the whole is plural."""

    first: NounPhrase | Name
    second: NounPhrase | Name
    person: int = 3
    number: Number = "pl"
    is_pronoun: bool = False

    def english(self, case: Case) -> str:
        return f"{self.first.english(case)} and {self.second.english(case)}"

    def german(self, case: Case) -> str:
        return f"{self.first.german(case)} und {self.second.german(case)}"


Nominal = Name | Pronoun | NounPhrase | Coordination


def relative_pronoun(antecedent: NounPhrase) -> Pronoun:
    """Return the relative pronoun that agrees with a noun phrase."""
    english = "who whom whose whom" if antecedent.belongs_to("human") else "that that whose which"
    gender, number = antecedent.noun.gender, antecedent.number
    cases: tuple[Case, ...] = ("nom", "acc", "dat", "gen")
    german = " ".join(declension.form("relative", case, gender, number) for case in cases)
    return Pronoun(english, german, number=number)


_CONTRACTIONS = {
    "in dem": "im", "in das": "ins", "an dem": "am", "an das": "ans", "zu dem": "zum", "zu der": "zur",
    "von dem": "vom",
}  # fmt: skip


def prepositional(preposition: Preposition, nominal: Nominal) -> Pair:
    """Return a preposition with its nominal; in German it can contract with a definite article."""
    english = nominal.english_after_preposition() if isinstance(nominal, Pronoun) else nominal.english("acc")
    german = f"{preposition.german} {nominal.german(preposition.case)}"
    if isinstance(nominal, NounPhrase) and nominal.contracts:
        first, article, rest = german.split(" ", 2)
        german = f"{_CONTRACTIONS.get(f'{first} {article}', f'{first} {article}')} {rest}"
    return Pair(f"{preposition.english} {english}", german)
