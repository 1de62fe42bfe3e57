"""Words of the demo corpus in their forms; the expected ones were written by hand."""

from __future__ import annotations

import pytest
from declension import ALL, DEFINITE, DEMONSTRATIVE, INDEFINITE, MANY, NO_DETERMINER, Determiner
from grammar_words import HER, MY, OUR, adjective, phrase
from lexicon import NOUNS, Case, Number, numeral
from nominals import Name, NounPhrase, relative_pronoun

CASES: tuple[Case, ...] = ("nom", "acc", "dat", "gen")


def test_every_german_noun_is_inflected_plausibly() -> None:
    for entry in NOUNS.values():
        forms = [entry.german_form(case, number) for number in ("sg", "pl") for case in CASES]
        assert all(form[0].isupper() and form[1:].islower() for form in forms), entry
        assert entry.genitive == entry.german if entry.gender == "f" else entry.genitive.endswith(("s", "n")), entry
        assert entry.belongs_to("mass") or entry.german_form("dat", "pl").endswith(("n", "s")), entry


@pytest.mark.parametrize(
    ("english", "expected"),
    [
        # Nominative, accusative, dative and genitive singular; nominative and dative plural.
        ("man", "der Mann, den Mann, dem Mann, des Mannes; die Männer, den Männern"),
        ("boy", "der Junge, den Jungen, dem Jungen, des Jungen; die Jungen, den Jungen"),
        ("neighbour", "der Nachbar, den Nachbarn, dem Nachbarn, des Nachbarn; die Nachbarn, den Nachbarn"),
        ("girl", "das Mädchen, das Mädchen, dem Mädchen, des Mädchens; die Mädchen, den Mädchen"),
        ("daughter", "die Tochter, die Tochter, der Tochter, der Tochter; die Töchter, den Töchtern"),
        ("car", "das Auto, das Auto, dem Auto, des Autos; die Autos, den Autos"),
        ("school bag", "die Schultasche, die Schultasche, der Schultasche, der Schultasche; "
                       "die Schultaschen, den Schultaschen"),
    ],
)  # fmt: skip
def test_nouns(english: str, expected: str) -> None:
    singular = [phrase(english).german(case) for case in CASES]
    plural = [phrase(english, number="pl").german(case) for case in ("nom", "dat")]
    assert f"{', '.join(singular)}; {', '.join(plural)}" == expected


@pytest.mark.parametrize(
    ("determiner", "english", "adj", "number", "case", "expected"),
    [
        (DEFINITE, "lamp", "old", "sg", "acc", "die alte Lampe"),
        (DEFINITE, "book", "old", "pl", "nom", "die alten Bücher"),
        (INDEFINITE, "table", "old", "sg", "nom", "ein alter Tisch"),
        (INDEFINITE, "lamp", "old", "sg", "dat", "einer alten Lampe"),
        (MY, "horse", "young", "sg", "nom", "mein junges Pferd"),
        (OUR, "friend", "young", "sg", "acc", "unseren jungen Freund"),
        (HER, "child", "sick", "pl", "dat", "ihren kranken Kindern"),
        (DEMONSTRATIVE, "house", "high", "sg", "dat", "diesem hohen Haus"),
        (ALL, "house", "expensive", "pl", "nom", "alle teuren Häuser"),
        (MANY, "house", "dark", "pl", "nom", "viele dunkle Häuser"),
        (NO_DETERMINER, "woman", "tired", "pl", "dat", "müden Frauen"),
        (NO_DETERMINER, "milk", "cold", "sg", "acc", "kalte Milch"),
        (NO_DETERMINER, "coffee", "warm", "sg", "acc", "warmen Kaffee"),
    ],
)
def test_adjective_endings(
    determiner: Determiner, english: str, adj: str, number: Number, case: Case, expected: str
) -> None:
    assert phrase(english, determiner, adj=adj, number=number).german(case) == expected


def test_possessors() -> None:
    car = NounPhrase(NOUNS["car"], possessor=Name("Anna", "f"), adjective=adjective("new"))
    assert (car.english("nom"), car.german("dat")) == ("Anna's new car", "Annas neuem Auto")
    coat = NounPhrase(NOUNS["coat"], possessor=phrase("student", MY), adjective=adjective("red"))
    assert (coat.english("acc"), coat.german("acc")) == ("my student's red coat", "den roten Mantel meines Studenten")
    roof = NounPhrase(NOUNS["roof"], possessor=phrase("church"), of_possessor=True)
    assert (roof.english("nom"), roof.german("nom")) == ("the roof of the church", "das Dach der Kirche")


def test_indefinite_article_before_a_vowel() -> None:
    words = [
        phrase("apple", INDEFINITE),
        phrase("table", INDEFINITE, adj="old"),
        phrase("apple", INDEFINITE, adj="big"),
    ]
    assert [entry.english("nom") for entry in words] == ["an apple", "an old table", "a big apple"]


def test_relative_pronouns() -> None:
    antecedents = (phrase("man"), phrase("woman"), phrase("car"), phrase("woman", number="pl"))
    forms = [" ".join(relative_pronoun(antecedent).german(case) for case in CASES) for antecedent in antecedents]
    assert forms == ["der den dem dessen", "die die der deren", "das das dem dessen", "die die denen deren"]


def test_numerals() -> None:
    expected = {
        2: "two zwei", 7: "seven sieben", 12: "twelve zwölf", 16: "sixteen sechzehn", 17: "seventeen siebzehn",
        20: "twenty zwanzig", 21: "twenty-one einundzwanzig", 30: "thirty dreißig", 66: "sixty-six sechsundsechzig",
        77: "seventy-seven siebenundsiebzig", 99: "ninety-nine neunundneunzig",
    }  # fmt: skip
    assert {value: f"{numeral(value).english} {numeral(value).german}" for value in expected} == expected
