"""The adjectives, cardinal numerals and frequency adverbs."""

from __future__ import annotations

from lexicon import Adjective, Adverbial
from lexicon import NounClass as C

_LIVING = (C.HUMAN, C.ANIMAL)
_GOODS = (C.FURNITURE, C.CONTAINER, C.UTENSIL, C.DEVICE, C.VEHICLE, C.CLOTHING)
_MADE = (*_GOODS, C.READABLE, C.POSSESSION, C.OPENABLE)
_SITES = (C.BUILDING, C.ROOM, C.LANDSCAPE)
_FOODSTUFF = (C.FOOD, C.DRINK)
_COLOURED = (C.FURNITURE, C.CONTAINER, C.VEHICLE, C.CLOTHING, C.OPENABLE)


def _adjective(
    english: str, german: str, *classes: C, more: str = "", mehr: str = "", stem: str = "", dimension: str = ""
) -> Adjective:
    """Build an adjective; ``more`` and ``mehr`` are the comparatives in the two languages."""
    return Adjective(english, german, stem or german, classes, more, mehr, dimension or english)


ADJECTIVES: tuple[Adjective, ...] = (
    _adjective("old", "alt", *_LIVING, *_MADE, C.BUILDING, C.TALL, more="older", mehr="älter", dimension="age"),
    _adjective("young", "jung", *_LIVING, more="younger", mehr="jünger", dimension="age"),
    _adjective("new", "neu", *_MADE, C.BUILDING, more="newer", mehr="neuer", dimension="age"),
    _adjective("big", "groß", C.ANIMAL, *_GOODS, *_SITES, C.OPENABLE, more="bigger", mehr="größer", dimension="size"),
    _adjective("small", "klein", C.ANIMAL, *_MADE, *_SITES, more="smaller", mehr="kleiner", dimension="size"),
    _adjective("beautiful", "schön", *_MADE, *_SITES, more="more beautiful", mehr="schöner", dimension="beauty"),
    _adjective("ugly", "hässlich", *_GOODS, C.BUILDING, C.ROOM, more="uglier", mehr="hässlicher", dimension="beauty"),
    _adjective(
        "expensive", "teuer", *_GOODS, *_FOODSTUFF, more="more expensive", mehr="teurer", stem="teur", dimension="price"
    ),
    _adjective("cheap", "billig", *_GOODS, *_FOODSTUFF, more="cheaper", mehr="billiger", dimension="price"),
    _adjective("heavy", "schwer", C.FURNITURE, C.CONTAINER, C.DEVICE, more="heavier", mehr="schwerer"),
    _adjective("broken", "kaputt", C.UTENSIL, C.DEVICE, C.VEHICLE, C.OPENABLE),
    _adjective(
        "dirty", "schmutzig", *_GOODS, C.ROOM, C.ANIMAL, more="dirtier", mehr="schmutziger", dimension="cleanliness"
    ),
    _adjective("clean", "sauber", *_GOODS, C.ROOM, more="cleaner", mehr="sauberer", dimension="cleanliness"),
    _adjective("red", "rot", *_COLOURED, C.UTENSIL, dimension="colour"),
    _adjective("blue", "blau", *_COLOURED, C.UTENSIL, dimension="colour"),
    _adjective("green", "grün", *_COLOURED, C.UTENSIL, dimension="colour"),
    _adjective("white", "weiß", *_COLOURED, C.ANIMAL, dimension="colour"),
    _adjective("black", "schwarz", *_COLOURED, C.ANIMAL, dimension="colour"),
    _adjective("brown", "braun", *_COLOURED, C.ANIMAL, dimension="colour"),
    _adjective("warm", "warm", C.CLOTHING, C.ROOM, C.DRINK, more="warmer", mehr="wärmer", dimension="temperature"),
    _adjective("cold", "kalt", C.ROOM, C.DRINK, more="colder", mehr="kälter", dimension="temperature"),
    _adjective("dark", "dunkel", C.ROOM, C.CLOTHING, more="darker", mehr="dunkler", stem="dunkl"),
    _adjective("long", "lang", C.EVENT, C.CLOTHING, C.READABLE, more="longer", mehr="länger", dimension="length"),
    _adjective("short", "kurz", C.EVENT, C.CLOTHING, C.READABLE, more="shorter", mehr="kürzer", dimension="length"),
    _adjective("boring", "langweilig", C.READABLE, C.EVENT, more="more boring", mehr="langweiliger"),
    _adjective("high", "hoch", C.TALL, more="higher", mehr="höher", stem="hoh"),
    _adjective("modern", "modern", C.BUILDING, C.FURNITURE, C.DEVICE, C.ROOM, more="more modern", mehr="moderner"),
    _adjective("fast", "schnell", C.VEHICLE, C.DEVICE, C.ANIMAL, more="faster", mehr="schneller"),
    _adjective("fresh", "frisch", *_FOODSTUFF, more="fresher", mehr="frischer"),
    _adjective("sweet", "süß", *_FOODSTUFF, more="sweeter", mehr="süßer"),
    _adjective("famous", "berühmt", C.HUMAN, C.BUILDING, more="more famous", mehr="berühmter"),
    _adjective("friendly", "freundlich", *_LIVING, more="friendlier", mehr="freundlicher"),
    _adjective("tired", "müde", *_LIVING, more="more tired", mehr="müder", stem="müd"),
    _adjective("hungry", "hungrig", *_LIVING, more="hungrier", mehr="hungriger"),
    _adjective("sick", "krank", *_LIVING, dimension="health"),
    _adjective("happy", "glücklich", C.HUMAN, more="happier", mehr="glücklicher", dimension="mood"),
    _adjective("sad", "traurig", C.HUMAN, more="sadder", mehr="trauriger", dimension="mood"),
    _adjective("rich", "reich", C.HUMAN, more="richer", mehr="reicher", dimension="wealth"),
    _adjective("poor", "arm", C.HUMAN, more="poorer", mehr="ärmer", dimension="wealth"),
    _adjective("clever", "klug", *_LIVING, more="cleverer", mehr="klüger"),
    _adjective("lazy", "faul", *_LIVING, more="lazier", mehr="fauler", dimension="health"),
    _adjective("strong", "stark", *_LIVING, more="stronger", mehr="stärker", dimension="health"),
    _adjective("polite", "höflich", C.HUMAN, more="more polite", mehr="höflicher"),
)

# Adjectives that say how somebody is at the moment, which makes them good reasons and conditions.
TEMPORARY_STATES: tuple[Adjective, ...] = tuple(
    entry for entry in ADJECTIVES if entry.english in ("tired", "hungry", "sick", "happy", "sad")
)

FREQUENCY_ADVERBS: tuple[Adverbial, ...] = (
    Adverbial("often", "oft"),
    Adverbial("always", "immer"),
    Adverbial("sometimes", "manchmal"),
    Adverbial("never", "nie"),
)

_ENGLISH_SMALL = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_ENGLISH_TENS = [".", ".", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_GERMAN_SMALL = [
    "null",
    "ein",
    "zwei",
    "drei",
    "vier",
    "fünf",
    "sechs",
    "sieben",
    "acht",
    "neun",
    "zehn",
    "elf",
    "zwölf",
    "dreizehn",
    "vierzehn",
    "fünfzehn",
    "sechzehn",
    "siebzehn",
    "achtzehn",
    "neunzehn",
]
_GERMAN_TENS = [".", ".", "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"]

SMALLEST_NUMERAL = 2
LARGEST_NUMERAL = 99


def english_numeral(value: int) -> str:
    """Spell out ``value`` (2 to 99) in English: 23 is *twenty-three*."""
    _check_numeral(value)
    if value < len(_ENGLISH_SMALL):
        return _ENGLISH_SMALL[value]
    tens, units = divmod(value, 10)
    return f"{_ENGLISH_TENS[tens]}-{_ENGLISH_SMALL[units]}" if units else _ENGLISH_TENS[tens]


def german_numeral(value: int) -> str:
    """Spell out ``value`` (2 to 99) in German, units first: 23 is *dreiundzwanzig*."""
    _check_numeral(value)
    if value < len(_GERMAN_SMALL):
        return _GERMAN_SMALL[value]
    tens, units = divmod(value, 10)
    return f"{_GERMAN_SMALL[units]}und{_GERMAN_TENS[tens]}" if units else _GERMAN_TENS[tens]


def _check_numeral(value: int) -> None:
    # One is left out: German treats it as the indefinite article.
    if not SMALLEST_NUMERAL <= value <= LARGEST_NUMERAL:
        raise ValueError(f"numeral {value} is outside {SMALLEST_NUMERAL} to {LARGEST_NUMERAL}")
