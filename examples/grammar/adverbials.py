"""Adverbials of time and the places and directions of the demo world."""

from __future__ import annotations

from dataclasses import dataclass

from lexicon import Adverbial, Case, Noun, Preposition
from modifiers import english_numeral, german_numeral
from nouns import noun

PRESENT_TIMES = (
    Adverbial("every day", "jeden Tag"),
    Adverbial("every morning", "jeden Morgen"),
    Adverbial("every week", "jede Woche"),
    Adverbial("in summer", "im Sommer"),
    Adverbial("in winter", "im Winter"),
    Adverbial("in the evening", "am Abend"),
    Adverbial("at the weekend", "am Wochenende"),
)
PAST_TIMES = (
    Adverbial("yesterday", "gestern"),
    Adverbial("yesterday evening", "gestern Abend"),
    Adverbial("last week", "letzte Woche"),
    Adverbial("last year", "letztes Jahr"),
    Adverbial("this morning", "heute Morgen"),
)
FUTURE_TIMES = (
    Adverbial("tomorrow", "morgen"),
    Adverbial("tomorrow evening", "morgen Abend"),
    Adverbial("next week", "nächste Woche"),
    Adverbial("next year", "nächstes Jahr"),
    Adverbial("soon", "bald"),
    Adverbial("today", "heute"),
)
WEEKDAYS = (
    Adverbial("on Monday", "am Montag"),
    Adverbial("on Tuesday", "am Dienstag"),
    Adverbial("on Wednesday", "am Mittwoch"),
    Adverbial("on Thursday", "am Donnerstag"),
    Adverbial("on Friday", "am Freitag"),
    Adverbial("on Saturday", "am Samstag"),
    Adverbial("on Sunday", "am Sonntag"),
)
CIRCUMSTANCES = (
    Adverbial("after the concert", "nach dem Konzert"),
    Adverbial("after the wedding", "nach der Hochzeit"),
    Adverbial("before the meal", "vor dem Essen"),
    Adverbial("before the journey", "vor der Reise"),
    Adverbial("during the break", "während der Pause"),
    Adverbial("during the concert", "während des Konzerts"),
    Adverbial("because of the rain", "wegen des Regens"),
    Adverbial("because of the cold", "wegen der Kälte"),
    Adverbial("despite the rain", "trotz des Regens"),
    Adverbial("despite the noise", "trotz des Lärms"),
)
# The first units are those in which an activity is measured.
_UNITS = (("hours", "Stunden"), ("days", "Tage"), ("weeks", "Wochen"), ("months", "Monate"), ("years", "Jahre"))
TIME_UNIT_COUNT = len(_UNITS)
DURATION_UNIT_COUNT = 2
LATEST_HOUR = 12


def clock_time(hour: int) -> Adverbial:
    """Return *at seven o'clock* and its German counterpart."""
    return Adverbial(f"at {english_numeral(hour)} o'clock", f"um {german_numeral(hour)} Uhr")


def duration(count: int, unit: int) -> Adverbial:
    """Return *for three hours*: German puts *lang* after the measure."""
    english, german = _UNITS[unit]
    return Adverbial(f"for {english_numeral(count)} {english}", f"{german_numeral(count)} {german} lang")


def past_distance(count: int, unit: int) -> Adverbial:
    """Return *three days ago*: German uses a preposition with the dative."""
    english, german = _UNITS[unit]
    return Adverbial(f"{english_numeral(count)} {english} ago", f"vor {german_numeral(count)} {_dative(german)}")


def future_distance(count: int, unit: int) -> Adverbial:
    """Return *in three days*."""
    english, german = _UNITS[unit]
    return Adverbial(f"in {english_numeral(count)} {english}", f"in {german_numeral(count)} {_dative(german)}")


def _dative(plural: str) -> str:
    return plural if plural.endswith("n") else plural + "n"


@dataclass(frozen=True)
class PlaceRelation:
    """A preposition with the nouns it combines with."""

    preposition: Preposition
    nouns: tuple[Noun, ...]


def _relation(english: str, german: str, case: Case, nouns: str) -> PlaceRelation:
    """Build a relation from a comma-separated list of English nouns."""
    return PlaceRelation(Preposition(english, german, case), tuple(noun(word.strip()) for word in nouns.split(",")))


_AKK, _DAT = Case.ACCUSATIVE, Case.DATIVE
_INTERIORS = (
    "house, school, church, hospital, museum, hotel, restaurant, castle, library, factory, kitchen, room, "
    "cellar, office, garden, park, forest, city, village, city park, hotel room, village school"
)
LOCATIONS = (
    _relation("in", "in", _DAT, _INTERIORS),
    _relation("in", "in", _DAT, _INTERIORS),
    _relation("at", "an", _DAT, "station, airport"),
    _relation("by", "an", _DAT, "lake, river"),
    _relation("at", "auf", _DAT, "market"),
    _relation("on", "auf", _DAT, "bridge, island, meadow, street, mountain"),
)
# Where one can live or stay; the narrower choice keeps sentences plausible.
RESIDENCES = (
    _relation("in", "in", _DAT, "house, hotel, castle, city, village, room, tower"),
    _relation("on", "auf", _DAT, "island, mountain"),
    _relation("by", "an", _DAT, "lake, river"),
)
_GOALS = "station, airport, lake, river, market, church, school, castle, museum, hospital, hotel, library, factory"
COMING_DIRECTIONS = (
    _relation("into", "in", _AKK, _INTERIORS),
    _relation("to", "zu", _DAT, _GOALS),
    _relation("out of", "aus", _DAT, "house, school, church, museum, hotel, castle, kitchen, room, garden, forest"),
    _relation("from", "von", _DAT, "station, airport, lake, market"),
)
DIRECTIONS_ON_FOOT = (
    _relation("into", "in", _AKK, _INTERIORS),
    _relation("to", "zu", _DAT, _GOALS),
    _relation("out of", "aus", _DAT, "house, school, church, hospital, museum, hotel, castle, kitchen, room, garden"),
    _relation("through", "durch", _AKK, "park, forest, garden, city, village, kitchen, city park"),
    _relation("around", "um", _AKK, "house, lake, church, castle, tree, tower"),
    _relation("across", "über", _AKK, "bridge, street, meadow"),
)
LONG_DIRECTIONS = (
    _relation("into", "in", _AKK, "city, village, forest"),
    _relation("to", "zu", _DAT, _GOALS),
    _relation("through", "durch", _AKK, "park, forest, city, village, city park"),
    _relation("around", "um", _AKK, "lake, castle, village"),
    _relation("across", "über", _AKK, "bridge, meadow, island"),
)


def _spots(case: Case) -> tuple[PlaceRelation, ...]:
    return (
        _relation("on", "auf", case, "table, chair, bed, sofa, carpet, shelf, kitchen table, garden chair"),
        _relation("under", "unter", case, "table, bed, chair, sofa, window, garden table"),
        _relation("next to", "neben", case, "table, bed, cupboard, shelf, door, sofa, lamp, vase"),
        _relation("behind", "hinter", case, "door, sofa, cupboard, house, tree, kitchen door"),
        _relation("in front of", "vor", case, "house, door, window, cupboard, sofa, tree"),
    )


def _hanging_spots(case: Case) -> tuple[PlaceRelation, ...]:
    return (
        _relation("on", "an", case, "wall, door, hook"),
        _relation("in", "in", case, "cupboard"),
    )


def _picture_spots(case: Case) -> tuple[PlaceRelation, ...]:
    return (
        _relation("on", "an", case, "wall"),
        _relation("above", "über", case, "bed, sofa, table, shelf, door, kitchen table, hotel bed"),
    )


def _containers(case: Case) -> PlaceRelation:
    return _relation("in", "in", case, "bag, suitcase, box, basket, cupboard, school bag, leather bag")


# The same English preposition is followed by the accusative where something ends up and by the
# dative where it is.
SPOTS_AS_GOAL, SPOTS_AS_PLACE = _spots(_AKK), _spots(_DAT)
CONTAINERS_AS_GOAL, CONTAINERS_AS_PLACE = _containers(_AKK), _containers(_DAT)
PICTURES_AS_GOAL, PICTURES_AS_PLACE = _picture_spots(_AKK), _picture_spots(_DAT)
HANGING_AS_GOAL, HANGING_AS_PLACE = _hanging_spots(_AKK), _hanging_spots(_DAT)
SEATS = (_relation("on", "auf", _DAT, "chair, sofa, bed, carpet, garden chair, kitchen chair"),)
BESIDE_PEOPLE = (
    Preposition("next to", "neben", _DAT),
    Preposition("behind", "hinter", _DAT),
    Preposition("in front of", "vor", _DAT),
)

TO_PERSON = Preposition("to", "zu", _DAT)
WITH = Preposition("with", "mit", _DAT)
WITHOUT = Preposition("without", "ohne", _AKK)
FOR = Preposition("for", "für", _AKK)
