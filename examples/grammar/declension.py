"""Determiners and the endings they and attributive adjectives take in German."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from lexicon import Adjective, Case, Gender, Number

# Column order of every table below.
_CASES = (Case.NOMINATIVE, Case.ACCUSATIVE, Case.DATIVE, Case.GENITIVE)


class Declension(Enum):
    """Which adjective endings a determiner leaves for the adjective to carry."""

    WEAK = "weak"
    MIXED = "mixed"
    STRONG = "strong"


class Inflection(Enum):
    """How the German determiner itself is inflected."""

    ARTICLE = "definite article"
    DER_WORD = "like dieser"
    EIN_WORD = "like ein"
    NONE = "no determiner"


_Table = dict[Gender | Number, tuple[str, ...]]


def _table(masculine: str, feminine: str, neuter: str, plural: str) -> _Table:
    """Build a table from rows of four forms; a dash stands for the empty ending."""

    def row(forms: str) -> tuple[str, ...]:
        return tuple("" if form == "-" else form for form in forms.split())

    return {
        Gender.MASCULINE: row(masculine),
        Gender.FEMININE: row(feminine),
        Gender.NEUTER: row(neuter),
        Number.PLURAL: row(plural),
    }


_DEFINITE_ARTICLE = _table("der den dem des", "die die der der", "das das dem des", "die die den der")
_DER_WORD_ENDINGS = _table("er en em es", "e e er er", "es es em es", "e e en er")
_EIN_WORD_ENDINGS = _table("- en em es", "e e er er", "- - em es", "e e en er")
_RELATIVE_PRONOUN = _table("der den dem dessen", "die die der deren", "das das dem dessen", "die die denen deren")

_ADJECTIVE_ENDINGS = {
    Declension.WEAK: _table("e en en en", "e e en en", "e e en en", "en en en en"),
    Declension.MIXED: _table("er en en en", "e e en en", "es es en en", "en en en en"),
    Declension.STRONG: _table("er en em en", "e e er er", "es es em en", "e e en er"),
}


def _cell(table: _Table, case: Case, gender: Gender, number: Number) -> str:
    row = table[Number.PLURAL] if number is Number.PLURAL else table[gender]
    return row[_CASES.index(case)]


@dataclass(frozen=True)
class Determiner:
    """A determiner; an empty English form means that it does not exist in that number."""

    english_singular: str
    english_plural: str
    stem: str
    inflection: Inflection
    declension: Declension

    def english(self, number: Number) -> str:
        """Return the English form for ``number``."""
        return self.english_singular if number is Number.SINGULAR else self.english_plural

    def german(self, case: Case, gender: Gender, number: Number) -> str:
        """Return the German form, empty where there is no determiner."""
        match self.inflection:
            case Inflection.ARTICLE:
                return _cell(_DEFINITE_ARTICLE, case, gender, number)
            case Inflection.DER_WORD:
                return self.stem + _cell(_DER_WORD_ENDINGS, case, gender, number)
            case Inflection.EIN_WORD:
                return self.stem + _cell(_EIN_WORD_ENDINGS, case, gender, number)
            case Inflection.NONE:
                return ""


def _der_word(singular: str, plural: str, stem: str, declension: Declension = Declension.WEAK) -> Determiner:
    return Determiner(singular, plural, stem, Inflection.DER_WORD, declension)


def _ein_word(singular: str, plural: str, stem: str) -> Determiner:
    return Determiner(singular, plural, stem, Inflection.EIN_WORD, Declension.MIXED)


NO_DETERMINER = Determiner("", "", "", Inflection.NONE, Declension.STRONG)
DEFINITE = Determiner("the", "the", "", Inflection.ARTICLE, Declension.WEAK)
INDEFINITE = _ein_word("a", "", "ein")
NEGATIVE = _ein_word("no", "no", "kein")
POSSESSIVES = (
    _ein_word("my", "my", "mein"),
    _ein_word("his", "his", "sein"),
    _ein_word("her", "her", "ihr"),
    _ein_word("our", "our", "unser"),
    _ein_word("their", "their", "ihr"),
)
DEMONSTRATIVE = _der_word("this", "these", "dies")
EVERY = _der_word("every", "", "jed")
ALL = _der_word("", "all", "all")
# The quantifiers below are adjectives by origin, so an adjective after them keeps its strong endings.
MANY = _der_word("", "many", "viel", Declension.STRONG)
SOME = _der_word("", "some", "einig", Declension.STRONG)
WHICH = _der_word("which", "which", "welch")
HOW_MANY = _der_word("", "how many", "wie viel", Declension.STRONG)


def attributive_form(adjective: Adjective, declension: Declension, case: Case, gender: Gender, number: Number) -> str:
    """Return the German adjective with its attributive ending."""
    return adjective.stem + _cell(_ADJECTIVE_ENDINGS[declension], case, gender, number)


def relative_pronoun_form(case: Case, gender: Gender, number: Number) -> str:
    """Return the German relative pronoun for an antecedent of this gender and number."""
    return _cell(_RELATIVE_PRONOUN, case, gender, number)
