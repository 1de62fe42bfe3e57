"""Words of the demo corpus in their forms.

The expected forms were written by hand, not copied from the generator.
"""

from __future__ import annotations

import pytest
from declension import (
    ALL,
    DEFINITE,
    DEMONSTRATIVE,
    INDEFINITE,
    MANY,
    NO_DETERMINER,
    Determiner,
    attributive_form,
    relative_pronoun_form,
)
from grammar_words import ACCUSATIVE, DATIVE, GENITIVE, HER, MY, NOMINATIVE, OUR, PLURAL, SINGULAR, adjective, phrase
from lexicon import Case, Gender, Number
from modifiers import english_numeral, german_numeral
from noun_phrase import Name, NounPhrase
from nouns import NOUNS, noun


def test_every_german_noun_is_inflected_plausibly() -> None:
    for entry in NOUNS:
        forms = [entry.german_form(case, number) for number in (SINGULAR, PLURAL) for case in Case]
        assert all(form[0].isupper() and form[1:].islower() for form in forms), entry
        if entry.gender is Gender.FEMININE:
            assert entry.genitive == entry.german
        else:
            assert entry.genitive.endswith(("s", "n")), entry
        if not entry.mass:
            assert entry.german_form(DATIVE, PLURAL).endswith(("n", "s")), entry


@pytest.mark.parametrize(
    ("english", "expected"),
    [
        # Article with nominative, accusative, dative and genitive singular; nominative and dative plural.
        ("man", "der Mann, den Mann, dem Mann, des Mannes; die Männer, den Männern"),
        ("boy", "der Junge, den Jungen, dem Jungen, des Jungen; die Jungen, den Jungen"),
        ("neighbour", "der Nachbar, den Nachbarn, dem Nachbarn, des Nachbarn; die Nachbarn, den Nachbarn"),
        ("bear", "der Bär, den Bären, dem Bären, des Bären; die Bären, den Bären"),
        ("girl", "das Mädchen, das Mädchen, dem Mädchen, des Mädchens; die Mädchen, den Mädchen"),
        ("daughter", "die Tochter, die Tochter, der Tochter, der Tochter; die Töchter, den Töchtern"),
        ("car", "das Auto, das Auto, dem Auto, des Autos; die Autos, den Autos"),
        ("museum", "das Museum, das Museum, dem Museum, des Museums; die Museen, den Museen"),
        ("bus", "der Bus, den Bus, dem Bus, des Busses; die Busse, den Bussen"),
        ("kitchen table", "der Küchentisch, den Küchentisch, dem Küchentisch, des Küchentisches; "
                          "die Küchentische, den Küchentischen"),
        ("birthday gift", "das Geburtstagsgeschenk, das Geburtstagsgeschenk, dem Geburtstagsgeschenk, "
                          "des Geburtstagsgeschenks; die Geburtstagsgeschenke, den Geburtstagsgeschenken"),
        ("house key", "der Hausschlüssel, den Hausschlüssel, dem Hausschlüssel, des Hausschlüssels; "
                      "die Hausschlüssel, den Hausschlüsseln"),
        ("school bag", "die Schultasche, die Schultasche, der Schultasche, der Schultasche; "
                       "die Schultaschen, den Schultaschen"),
    ],
)  # fmt: skip
def test_nouns(english: str, expected: str) -> None:
    singular = [phrase(english).german(case) for case in (NOMINATIVE, ACCUSATIVE, DATIVE, GENITIVE)]
    plural = [phrase(english, number=PLURAL).german(case) for case in (NOMINATIVE, DATIVE)]
    assert f"{', '.join(singular)}; {', '.join(plural)}" == expected


@pytest.mark.parametrize(
    ("determiner", "english", "adj", "number", "case", "expected"),
    [
        (DEFINITE, "table", "old", SINGULAR, NOMINATIVE, "der alte Tisch"),
        (DEFINITE, "table", "old", SINGULAR, ACCUSATIVE, "den alten Tisch"),
        (DEFINITE, "lamp", "old", SINGULAR, ACCUSATIVE, "die alte Lampe"),
        (DEFINITE, "lamp", "old", SINGULAR, DATIVE, "der alten Lampe"),
        (DEFINITE, "book", "old", PLURAL, NOMINATIVE, "die alten Bücher"),
        (INDEFINITE, "table", "old", SINGULAR, NOMINATIVE, "ein alter Tisch"),
        (INDEFINITE, "table", "old", SINGULAR, ACCUSATIVE, "einen alten Tisch"),
        (INDEFINITE, "book", "old", SINGULAR, ACCUSATIVE, "ein altes Buch"),
        (INDEFINITE, "book", "old", SINGULAR, DATIVE, "einem alten Buch"),
        (INDEFINITE, "lamp", "old", SINGULAR, DATIVE, "einer alten Lampe"),
        (MY, "horse", "young", SINGULAR, NOMINATIVE, "mein junges Pferd"),
        (OUR, "friend", "young", SINGULAR, ACCUSATIVE, "unseren jungen Freund"),
        (HER, "child", "sick", PLURAL, DATIVE, "ihren kranken Kindern"),
        (DEMONSTRATIVE, "house", "high", SINGULAR, DATIVE, "diesem hohen Haus"),
        (ALL, "house", "expensive", PLURAL, NOMINATIVE, "alle teuren Häuser"),
        (MANY, "house", "dark", PLURAL, NOMINATIVE, "viele dunkle Häuser"),
        (NO_DETERMINER, "woman", "tired", PLURAL, DATIVE, "müden Frauen"),
        (NO_DETERMINER, "milk", "cold", SINGULAR, ACCUSATIVE, "kalte Milch"),
        (NO_DETERMINER, "coffee", "warm", SINGULAR, ACCUSATIVE, "warmen Kaffee"),
        (NO_DETERMINER, "beer", "cold", SINGULAR, NOMINATIVE, "kaltes Bier"),
    ],
)
def test_adjective_endings(
    determiner: Determiner, english: str, adj: str, number: Number, case: Case, expected: str
) -> None:
    assert phrase(english, determiner, adj=adj, number=number).german(case) == expected


def test_adjective_after_genitive_of_name_is_strong() -> None:
    car = NounPhrase(noun("car"), SINGULAR, possessor=Name("Anna", Gender.FEMININE), adjective=adjective("new"))
    assert car.english(NOMINATIVE) == "Anna's new car"
    assert car.german(NOMINATIVE) == "Annas neues Auto"
    assert car.german(DATIVE) == "Annas neuem Auto"
    assert attributive_form(adjective("new"), DEFINITE.declension, DATIVE, Gender.NEUTER, SINGULAR) == "neuen"


def test_possessor_follows_in_the_genitive() -> None:
    coat = NounPhrase(noun("coat"), SINGULAR, possessor=phrase("student", MY), adjective=adjective("red"))
    assert coat.english(ACCUSATIVE) == "my student's red coat"
    assert coat.german(ACCUSATIVE) == "den roten Mantel meines Studenten"
    roof = NounPhrase(noun("roof"), SINGULAR, possessor=phrase("church"), of_possessor=True)
    assert roof.english(NOMINATIVE) == "the roof of the church"
    assert roof.german(NOMINATIVE) == "das Dach der Kirche"


def test_indefinite_article_before_vowel() -> None:
    assert phrase("apple", INDEFINITE).english(NOMINATIVE) == "an apple"
    assert phrase("table", INDEFINITE, adj="old").english(NOMINATIVE) == "an old table"
    assert phrase("apple", INDEFINITE, adj="big").english(NOMINATIVE) == "a big apple"


@pytest.mark.parametrize(
    ("gender", "number", "expected"),
    [
        (Gender.MASCULINE, SINGULAR, "der den dem dessen"),
        (Gender.FEMININE, SINGULAR, "die die der deren"),
        (Gender.NEUTER, SINGULAR, "das das dem dessen"),
        (Gender.FEMININE, PLURAL, "die die denen deren"),
    ],
)
def test_relative_pronouns(gender: Gender, number: Number, expected: str) -> None:
    cases = (NOMINATIVE, ACCUSATIVE, DATIVE, GENITIVE)
    assert " ".join(relative_pronoun_form(case, gender, number) for case in cases) == expected


@pytest.mark.parametrize(
    ("value", "english", "german"),
    [
        (2, "two", "zwei"),
        (7, "seven", "sieben"),
        (12, "twelve", "zwölf"),
        (16, "sixteen", "sechzehn"),
        (17, "seventeen", "siebzehn"),
        (20, "twenty", "zwanzig"),
        (21, "twenty-one", "einundzwanzig"),
        (23, "twenty-three", "dreiundzwanzig"),
        (30, "thirty", "dreißig"),
        (48, "forty-eight", "achtundvierzig"),
        (66, "sixty-six", "sechsundsechzig"),
        (77, "seventy-seven", "siebenundsiebzig"),
        (99, "ninety-nine", "neunundneunzig"),
    ],
)
def test_numerals(value: int, english: str, german: str) -> None:
    assert (english_numeral(value), german_numeral(value)) == (english, german)


@pytest.mark.parametrize("value", [-1, 0, 1, 100])
def test_numerals_out_of_range(value: int) -> None:
    with pytest.raises(ValueError, match="2 to 99"):
        german_numeral(value)


@pytest.mark.parametrize(
    ("gender", "german"),
    [
        (Gender.MASCULINE, "Schlüssel Koffer Löffel Teller Rock Schuh Mantel Käse Reis Saft Turm Fluss See Haken"),
        (Gender.FEMININE, "Kartoffel Karotte Wand Insel Brücke Fabrik Bibliothek Maus Kuh Tür Pause"),
        (Gender.NEUTER, "Messer Hemd Kleid Büro Zimmer Schloss Dach Dorf Krankenhaus Fenster Regal Sofa Boot Bett"),
    ],
)
def test_genders(gender: Gender, german: str) -> None:
    genders = {entry.german: entry.gender for entry in NOUNS}
    for word in german.split():
        assert genders[word] is gender, word


def test_nouns_are_unique() -> None:
    english: list[str] = [entry.english for entry in NOUNS]
    assert len(set(english)) == len(english)
