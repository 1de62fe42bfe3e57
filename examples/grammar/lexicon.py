"""The words of both languages: what an entry is, and how it is read from the tables in ``words/``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

Gender = Literal["m", "f", "n"]
Case = Literal["nom", "acc", "dat", "gen"]
Number = Literal["sg", "pl"]
#: The English past is the German perfect, as in everyday German. The future is a modal in both languages.
Tense = Literal["present", "past"]
TENSES: tuple[Tense, Tense] = ("present", "past")

#: Names for several classes of nouns in the tables of adjectives and verbs.
_GROUPS = {
    "living": "human animal",
    "supplies": "food drink",
    "sites": "building room landscape",
    "goods": "furniture container utensil device vehicle clothing",
    "made": "goods readable possession openable",
    "colored": "furniture container vehicle clothing openable",
    "portable": "readable possession container utensil",
    "belongings": "portable clothing device vehicle furniture",
}


@dataclass(frozen=True)
class Pair:
    """What is said in English and in German: an adverbial, a predicate, or a whole sentence."""

    english: str
    german: str

    def __bool__(self) -> bool:
        return self != NOTHING


NOTHING = Pair("", "")


@dataclass(frozen=True)
class Noun:
    """A noun with the forms from which all others follow; ``oblique`` is the German accusative and dative.

    ``classes`` say what the noun can be combined with. ``feminine`` is the German word for a woman of that profession.
    """

    english: str
    english_plural: str
    german: str
    german_plural: str
    gender: Gender
    genitive: str
    oblique: str
    classes: tuple[str, ...]
    feminine: str = ""

    def english_form(self, number: Number) -> str:
        return self.english if number == "sg" else self.english_plural

    def german_form(self, case: Case, number: Number) -> str:
        """Return the German form; datives of the plural end in n where they can."""
        if number == "pl":
            return dative_plural(self.german_plural) if case == "dat" else self.german_plural
        return {"nom": self.german, "gen": self.genitive}.get(case, self.oblique)

    def belongs_to(self, *classes: str) -> bool:
        """Return whether the noun is in any of ``classes``."""
        return any(entry in self.classes for entry in classes)


@dataclass(frozen=True)
class Adjective:
    """An adjective; ``stem`` is what German endings are added to, and two of one ``dimension`` are never combined."""

    english: str
    german: str
    stem: str
    english_comparative: str
    german_comparative: str
    dimension: str
    classes: tuple[str, ...]


@dataclass(frozen=True)
class Preposition:
    """A preposition, and the case that follows the German one."""

    english: str
    german: str
    case: Case


@dataclass(frozen=True)
class EnglishVerb:
    """A verb with what follows it: *pick* and *up*; ``link`` is a preposition before the object: *look* and *for*."""

    base: str
    past: str
    particle: str = ""
    link: str = ""

    @property
    def third(self) -> str:
        """Return the third person singular; the forms of *be* are in ``english_syntax``."""
        return "has" if self.base == "have" else with_s(self.base, ("s", "sh", "ch", "x", "o"))


@dataclass(frozen=True)
class GermanVerb:
    """Forms of a verb; the infinitive and finite forms are without a separable prefix."""

    infinitive: str
    first: str
    third: str
    plural: str
    participle: str
    prefix: str
    auxiliary: Literal["haben", "sein"]
    reflexive: bool
    preterite: str

    @property
    def full_infinitive(self) -> str:
        """Return the infinitive with its prefix."""
        return self.prefix + self.infinitive

    @property
    def zu_infinitive(self) -> str:
        """Return the infinitive with *zu*, which comes after a separable prefix."""
        return f"{self.prefix}zu{self.infinitive}" if self.prefix else f"zu {self.infinitive}"


@dataclass(frozen=True)
class Verb:
    """A verb of both languages.

    Attributes:
        frame: the section of the table; it says what the verb combines with.
        subjects, objects: classes of nouns.
        governs: the preposition before a prepositional object.
        where: sections of the table of places.
        flags: ``place``: may come with a place; ``durative``: with a duration; ``stative`` and ``involuntary``: nobody
            decides to do it; ``to``: the English dative always has *to*; ``indefinite``: the object is indefinite.
    """

    english: EnglishVerb
    german: GermanVerb
    frame: str
    subjects: tuple[str, ...]
    objects: tuple[str, ...]
    governs: Preposition | None
    where: tuple[str, ...]
    flags: frozenset[str]

    @property
    def has_person(self) -> bool:
        """Return whether people do it."""
        return "human" in self.subjects

    @property
    def is_deliberate(self) -> bool:
        """Return whether one can want to do it."""
        return not self.flags & {"stative", "involuntary"}

    @property
    def is_of_things(self) -> bool:
        """Return whether neither people nor animals do it."""
        return not {"human", "animal"} & set(self.subjects)

    @property
    def past_is_clear(self) -> bool:
        """Return whether the English past is neither the present's form nor, as *lay* and *hung*, another verb's."""
        return self.english.past != self.english.base and not self.is_of_things


@dataclass(frozen=True)
class Modal:
    """A modal, or the auxiliary of the future: in English an ``auxiliary`` with a rest, or a verb that needs *do*."""

    auxiliary: str
    rest: str
    lexical: EnglishVerb | None
    first: str
    third: str
    plural: str
    tense: Tense = "present"


def with_s(word: str, sibilants: tuple[str, ...] = ("s", "x", "ch", "sh")) -> str:
    """Return an English plural or third person."""
    if word.endswith(sibilants):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def dative_plural(plural: str) -> str:
    """Return a German dative plural."""
    return plural if plural.endswith(("n", "s")) else plural + "n"


def _rows(table: str) -> Iterator[tuple[str, list[str]]]:
    """Yield section and columns of each row of a table; columns are two spaces apart or more."""
    section = ""
    for line in (Path(__file__).parent / "words" / f"{table}.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif not line.startswith("#"):
            yield section, re.split(r"  +", line)


def _classes(names: str) -> tuple[str, ...]:
    """Return the names of classes, those of groups in place of a group's."""
    classes: list[str] = []
    for name in names.split():
        classes += _classes(_GROUPS[name]) if name in _GROUPS else [name] if name != "-" else []
    return tuple(classes)


_GENDERS: dict[str, Gender] = {"der": "m", "die": "f", "das": "n"}
_CASES: dict[str, Case] = {"acc": "acc", "dat": "dat"}


def _preposition(english: str, german: str, case: str) -> Preposition:
    return Preposition(english, german, _CASES[case])


def _noun(english: str, german: str, classes: str = "", feminine: str = "") -> Noun:
    singular, _, english_plural = english.partition(" ")
    article, nominative, plural, *others = german.split()
    gender = _GENDERS[article]
    genitive = others[0] if others else nominative if gender == "f" else plural
    oblique = plural if gender == "m" and not others else nominative
    kinds = tuple(classes.split())
    if plural == "-":
        english_plural, plural, kinds = singular, nominative, (*kinds, "mass")
    return Noun(
        singular, english_plural or with_s(singular), nominative, plural, gender, genitive, oblique, kinds, feminine
    )


def _compound(modifier: str, first: str, head: Noun) -> Noun:
    plural, genitive, oblique = (first + form.lower() for form in (head.german_plural, head.genitive, head.oblique))
    return Noun(
        f"{modifier} {head.english}", f"{modifier} {head.english_plural}", first + head.german.lower(), plural,
        head.gender, genitive, oblique, head.classes,
    )  # fmt: skip


def _adjective(english: str, german: str, more: str, mehr: str, dimension: str, classes: str) -> Adjective:
    base, _, stem = german.partition(" ")
    more, mehr, dimension = (word if word != "-" else "" for word in (more, mehr, dimension))
    return Adjective(english, base, stem or base, more, mehr, dimension or english, _classes(classes))


def _verb(frame: str, english: str, past: str, german: str, objects: str, options: str = "") -> Verb:
    words, _, link = english.partition(" (")
    base, _, particle = words.partition(" ")
    values = dict(option.split("=") for option in options.split() if "=" in option)
    *mark, separated, third, participle = german.split()
    prefix, _, infinitive = separated.rpartition("|")
    forms = GermanVerb(
        infinitive, values.get("first", infinitive[:-1]), third, values.get("plural", infinitive), participle, prefix,
        "sein" if mark == ["ist"] else "haben", mark == ["sich"], values.get("preterite", ""),
    )  # fmt: skip
    governs = _preposition(*values["governs"].split("/")) if "governs" in values else None
    where = tuple(values["where"].split(",")) if "where" in values else ()
    return Verb(
        EnglishVerb(base, past, particle, link.strip(")")), forms, frame,
        _classes(values.get("by", "human").replace(",", " ")), _classes(objects), governs, where,
        frozenset(option for option in options.split() if "=" not in option),
    )  # fmt: skip


def _nouns() -> dict[str, Noun]:
    nouns = {entry.english: entry for entry in (_noun(*columns) for _, columns in _rows("nouns"))}
    for _, (modifier, first, heads) in _rows("compounds"):
        for head in heads.split(", "):
            nouns[f"{modifier} {head}"] = _compound(modifier, first, nouns[head])
    return nouns


NOUNS = _nouns()
PROFESSIONS = [entry for entry in NOUNS.values() if entry.feminine]
ADJECTIVES = [_adjective(*columns) for _, columns in _rows("adjectives")]
#: How somebody is at the moment, which makes a good reason or condition.
TEMPORARY_STATES = [entry for entry in ADJECTIVES if entry.english in ("tired", "hungry", "sick", "happy", "sad")]

_VERBS = [_verb(frame, *columns) for frame, columns in _rows("verbs")]
_SPECIAL_FRAMES = ("clausal", "control", "copula", "staying", "weather")
VERBS = [entry for entry in _VERBS if entry.frame not in _SPECIAL_FRAMES]
#: Verbs of what has frames of its own: *that* and *whether* clauses, infinitives, *be*, *stay*, the weather.
SPECIAL_VERBS = {frame: [entry for entry in _VERBS if entry.frame == frame] for frame in _SPECIAL_FRAMES}
(BE,) = SPECIAL_VERBS["copula"]
LIVE, WORK = (entry for base in ("live", "work") for entry in VERBS if entry.english.base == base)


@cache
def nouns_of(*classes: str) -> list[Noun]:
    """Return the nouns in any of ``classes``."""
    return [entry for entry in NOUNS.values() if entry.belongs_to(*classes)]


FUTURE = Modal("will", "", None, "werde", "wird", "werden")
MUST = Modal("must", "", None, "muss", "muss", "müssen")
# What one must not do one is not allowed to do: German *muss nicht* would mean "need not".
MUST_NOT = Modal("must", "", None, "darf", "darf", "dürfen")
HAD_TO = Modal("", "", EnglishVerb("have", "had"), "musste", "musste", "mussten", "past")
MODALS = (
    MUST,
    Modal("can", "", None, "kann", "kann", "können"),
    Modal("should", "", None, "sollte", "sollte", "sollten"),
    Modal("", "", EnglishVerb("want", "wanted"), "will", "will", "wollen"),
    Modal("would", "like to", None, "möchte", "möchte", "möchten"),
    Modal("", "", EnglishVerb("want", "wanted"), "wollte", "wollte", "wollten", "past"),
    HAD_TO,
)

#: Names that do not end in a sibilant, so that the German genitive is a plain s.
NAMES: tuple[tuple[str, Gender], ...] = (
    ("Anna", "f"), ("Peter", "m"), ("Maria", "f"), ("Paul", "m"), ("Julia", "f"), ("Martin", "m"), ("Laura", "f"),
    ("Stefan", "m"),
)  # fmt: skip


class PlaceRelation(NamedTuple):
    """A preposition with the nouns that it goes with."""

    preposition: Preposition
    nouns: list[Noun]


_PLACES = list(_rows("places"))


@cache
def places(*sections: str, case: Case = "dat") -> list[PlaceRelation]:
    """Return the relations of some sections, with ``case`` where a goal differs from a place."""
    relations = []
    for section in sections:
        for english, german, nouns in (columns for own, columns in _PLACES if own == section):
            place, _, goal = english.partition("/")
            preposition, own_case = german.replace("-", case).split()
            words = _preposition(goal if goal and case == "acc" else place, preposition, own_case)
            relations.append(PlaceRelation(words, [NOUNS[noun] for noun in nouns.split(", ")]))
    return relations


#: Adverbials, units and numbers, by section.
PAIRS: dict[str, list[Pair]] = {}
for _section, (_row,) in _rows("pairs"):
    for _entry in _row.split(", "):
        PAIRS.setdefault(_section, []).append(Pair(*_entry.split(" = ")))


def numeral(value: int) -> Pair:
    """Spell out a number from 2 to 99; German has units first: 23 is *dreiundzwanzig*."""
    if value < 20:
        return PAIRS["numbers"][value]
    ten, unit = PAIRS["tens"][value // 10], PAIRS["numbers"][value % 10]
    if value % 10 == 0:
        return ten
    return Pair(f"{ten.english}-{unit.english}", f"{unit.german}und{ten.german}")
