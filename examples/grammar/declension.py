"""Determiners, and the endings that they and attributive adjectives have in German."""

from __future__ import annotations

from dataclasses import dataclass

from lexicon import Adjective, Case, Gender, Number

_CASES = ("nom", "acc", "dat", "gen")

#: Forms by case for masculine, feminine, neuter and plural; a dash is no ending.
_TABLES = {
    "article": ("der den dem des", "die die der der", "das das dem des", "die die den der"),
    "der-word": ("er en em es", "e e er er", "es es em es", "e e en er"),
    "ein-word": ("- en em es", "e e er er", "- - em es", "e e en er"),
    "relative": ("der den dem dessen", "die die der deren", "das das dem dessen", "die die denen deren"),
    "weak": ("e en en en", "e e en en", "e e en en", "en en en en"),
    "mixed": ("er en en en", "e e en en", "es es en en", "en en en en"),
    "strong": ("er en em en", "e e er er", "es es em en", "e e en er"),
}


def form(table: str, case: Case, gender: Gender, number: Number) -> str:
    """Return a cell of a table."""
    row = 3 if number == "pl" else "mfn".index(gender)
    return _TABLES[table][row].split()[_CASES.index(case)].replace("-", "")


@dataclass(frozen=True)
class Determiner:
    """A determiner; an empty English form means that it does not exist in that number.

    German adds the endings of ``table`` to ``stem``, and ``declension`` is that of an adjective after it.
    """

    singular: str
    plural: str
    stem: str
    table: str
    declension: str

    def english(self, number: Number) -> str:
        return self.singular if number == "sg" else self.plural

    def german(self, case: Case, gender: Gender, number: Number) -> str:
        """Return the German form, empty where there is no determiner."""
        return self.stem + form(self.table, case, gender, number) if self.table else ""


NO_DETERMINER = Determiner("", "", "", "", "strong")
DEFINITE = Determiner("the", "the", "", "article", "weak")
INDEFINITE = Determiner("a", "", "ein", "ein-word", "mixed")
NEGATIVE = Determiner("no", "no", "kein", "ein-word", "mixed")
POSSESSIVES = tuple(
    Determiner(english, english, german, "ein-word", "mixed")
    for english, german in (("my", "mein"), ("his", "sein"), ("her", "ihr"), ("our", "unser"), ("their", "ihr"))
)
DEMONSTRATIVE = Determiner("this", "these", "dies", "der-word", "weak")
EVERY = Determiner("every", "", "jed", "der-word", "weak")
ALL = Determiner("", "all", "all", "der-word", "weak")
WHICH = Determiner("which", "which", "welch", "der-word", "weak")
# These are adjectives by origin, so an adjective after them has strong endings.
MANY = Determiner("", "many", "viel", "der-word", "strong")
SOME = Determiner("", "some", "einig", "der-word", "strong")
HOW_MANY = Determiner("", "how many", "wie viel", "der-word", "strong")


def attributive(adjective: Adjective, declension: str, case: Case, gender: Gender, number: Number) -> str:
    """Return the German adjective with its ending."""
    return adjective.stem + form(declension, case, gender, number)
