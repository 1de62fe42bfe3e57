"""Clauses of the demo corpus: both languages' word order.

The expected sentences were written by hand, not copied from the generator.
"""

from __future__ import annotations

import pytest
from clause import Argument, Clause, Comparison, FixedComplement, Fronted, PredicateProfession, PrepositionalPhrase
from declension import DEFINITE, INDEFINITE, NO_DETERMINER
from english_syntax import english_declarative, english_infinitive, english_interrogative
from german_syntax import german_infinitive, german_verb_final, german_verb_first, german_verb_second
from grammar_words import ACCUSATIVE, DATIVE, HER, HIS, MY, OUR, PLURAL, SINGULAR, adjective, modal, phrase, verb
from lexicon import Adverbial, Gender, Preposition, Tense
from noun_phrase import NounPhrase
from nouns import noun
from pronouns import HE, I_PRONOUN, SHE, THEY, RelativePronoun
from relative_clause import RelativeClause
from sentence import sentence_pair
from verbs import BE, FUTURE, MUST_NOT

IN_ACCUSATIVE = Preposition("into", "in", ACCUSATIVE)
IN_DATIVE = Preposition("in", "in", DATIVE)
YESTERDAY = Adverbial("yesterday", "gestern")
YESTERDAY_FIRST = Fronted("yesterday", "gestern", Argument.NONE)


@pytest.mark.parametrize(
    ("clause", "english", "german"),
    [
        (
            Clause(phrase("man"), verb("open"), accusative=phrase("window", DEFINITE, adj="dirty")),
            "The man opens the dirty window.",
            "Der Mann macht das schmutzige Fenster auf.",
        ),
        (
            Clause(phrase("man"), verb("open"), Tense.PAST, accusative=phrase("door"), fronted=YESTERDAY_FIRST),
            "Yesterday the man opened the door.",
            "Gestern hat der Mann die Tür aufgemacht.",
        ),
        (
            Clause(SHE, verb("pick up"), modal=modal("will"), accusative=HE, time=Adverbial("tomorrow", "morgen")),
            "She wants to pick him up tomorrow.",
            "Sie will ihn morgen abholen.",
        ),
        (
            Clause(SHE, verb("pick up"), accusative=phrase("child", HER, number=PLURAL)),
            "She picks up her children.",
            "Sie holt ihre Kinder ab.",
        ),
        (
            Clause(I_PRONOUN, verb("give"), Tense.PAST, accusative=phrase("apple"), dative=phrase("child")),
            "I gave the child the apple.",
            "Ich habe dem Kind den Apfel gegeben.",
        ),
        (
            Clause(phrase("boy"), verb("introduce"), accusative=SHE, dative=phrase("teacher")),
            "The boy introduces her to the teacher.",
            "Der Junge stellt sie dem Lehrer vor.",
        ),
        (
            Clause(THEY, verb("help"), Tense.PAST, dative=phrase("neighbour", OUR)),
            "They helped our neighbour.",
            "Sie haben unserem Nachbarn geholfen.",
        ),
        (
            Clause(HE, verb("go"), Tense.PAST, complement=PrepositionalPhrase(IN_ACCUSATIVE, phrase("garden"))),
            "He went into the garden.",
            "Er ist in den Garten gegangen.",
        ),
        (
            Clause(HE, verb("sleep"), adjunct=PrepositionalPhrase(IN_DATIVE, phrase("garden"))),
            "He sleeps in the garden.",
            "Er schläft im Garten.",
        ),
        (
            Clause(HE, verb("go"), complement=PrepositionalPhrase(IN_ACCUSATIVE, phrase("house")), negated=True),
            "He does not go into the house.",
            "Er geht nicht ins Haus.",
        ),
        (
            Clause(SHE, verb("buy"), accusative=phrase("coat", INDEFINITE), negated=True),
            "She does not buy a coat.",
            "Sie kauft keinen Mantel.",
        ),
        (
            Clause(SHE, verb("buy"), accusative=phrase("coat"), negated=True),
            "She does not buy the coat.",
            "Sie kauft den Mantel nicht.",
        ),
        (
            Clause(SHE, verb("eat"), modal=MUST_NOT, accusative=phrase("apple", NO_DETERMINER, number=PLURAL),
                   negated=True),
            "She must not eat apples.",
            "Sie darf keine Äpfel essen.",
        ),
        (
            Clause(phrase("dog"), verb("eat", "fressen"), accusative=phrase("bread")),
            "The dog eats the bread.",
            "Der Hund frisst das Brot.",
        ),
        (
            Clause(phrase("man"), verb("hurry"), Tense.PAST, fronted=YESTERDAY_FIRST),
            "Yesterday the man hurried.",
            "Gestern hat sich der Mann beeilt.",
        ),
        (
            Clause(I_PRONOUN, verb("rest"), modal=FUTURE),
            "I will rest.",
            "Ich werde mich ausruhen.",
        ),
        (
            Clause(phrase("sister", MY), BE, complement=PredicateProfession(noun("doctor"), Gender.FEMININE)),
            "My sister is a doctor.",
            "Meine Schwester ist Ärztin.",
        ),
        (
            Clause(phrase("tree"), BE, complement=Comparison(adjective("high"), phrase("house"), equal=False)),
            "The tree is higher than the house.",
            "Der Baum ist höher als das Haus.",
        ),
        (
            Clause(HE, BE, Tense.PAST, complement=FixedComplement("at home", "zu Hause")),
            "He was at home.",
            "Er war zu Hause.",
        ),
    ],
)  # fmt: skip
def test_main_clauses(clause: Clause, english: str, german: str) -> None:
    pair = sentence_pair(english_declarative(clause), german_verb_second(clause))
    assert (pair.english, pair.german) == (english, german)


@pytest.mark.parametrize(
    ("clause", "english", "german"),
    [
        (
            Clause(SHE, verb("call"), accusative=phrase("policeman")),
            "she calls the policeman",
            "sie den Polizisten anruft",
        ),
        (
            Clause(SHE, verb("call"), Tense.PAST, accusative=HE),
            "she called him",
            "sie ihn angerufen hat",
        ),
        (
            Clause(THEY, verb("get up"), modal=modal("muss")),
            "they must get up",
            "sie aufstehen müssen",
        ),
        (
            Clause(phrase("woman"), verb("be interested"), complement=PrepositionalPhrase(
                Preposition("in", "für", ACCUSATIVE), phrase("machine"))),
            "the woman is interested in the machine",
            "sich die Frau für die Maschine interessiert",
        ),
    ],
)  # fmt: skip
def test_subordinate_clauses(clause: Clause, english: str, german: str) -> None:
    assert (english_declarative(clause), german_verb_final(clause)) == (english, german)


def test_infinitive_clauses() -> None:
    closing = Clause(I_PRONOUN, verb("close"), accusative=phrase("suitcase", HIS))
    assert english_infinitive(closing) == "to close his suitcase"
    assert german_infinitive(closing) == "seinen Koffer zuzumachen"
    resting = Clause(I_PRONOUN, verb("rest"))
    assert german_infinitive(resting) == "mich auszuruhen"
    waiting = Clause(
        SHE, verb("wait"), complement=PrepositionalPhrase(Preposition("for", "auf", ACCUSATIVE), I_PRONOUN)
    )
    assert english_infinitive(waiting) == "to wait for me"
    assert german_infinitive(waiting) == "auf mich zu warten"


def test_questions() -> None:
    polar = Clause(phrase("woman"), verb("tidy up"), Tense.PAST, accusative=phrase("kitchen"))
    assert english_interrogative(polar) == "did the woman tidy up the kitchen"
    assert german_verb_first(polar) == "hat die Frau die Küche aufgeräumt"
    where = Clause(HE, verb("drive"), fronted=Fronted("where", "wohin", Argument.COMPLEMENT))
    assert english_interrogative(where) == "where does he drive"
    assert german_verb_second(where) == "wohin fährt er"


def test_relative_clauses() -> None:
    antecedent = phrase("car")
    pronoun = RelativePronoun.referring_to(antecedent)
    bought = Clause(
        phrase("brother", MY), verb("buy"), Tense.PAST, accusative=pronoun,
        fronted=Fronted(pronoun.english(ACCUSATIVE), pronoun.german(ACCUSATIVE), Argument.ACCUSATIVE),
    )  # fmt: skip
    car = NounPhrase(noun("car"), SINGULAR, DEFINITE, postmodifier=RelativeClause(bought))
    old = Clause(car, BE, complement=FixedComplement("old", "alt"))
    pair = sentence_pair(english_declarative(old), german_verb_second(old))
    assert pair.english == "The car that my brother bought is old."
    assert pair.german == "Das Auto, das mein Bruder gekauft hat, ist alt."

    helped = RelativePronoun.referring_to(phrase("woman", number=PLURAL))
    clause = Clause(
        I_PRONOUN, verb("help"), dative=helped,
        fronted=Fronted("whom", helped.german(DATIVE), Argument.DATIVE),
    )  # fmt: skip
    assert RelativeClause(clause).english() == "whom I help"
    assert RelativeClause(clause).german() == ", denen ich helfe ,"


# Properties of the whole German side that a wrong rule would break.
