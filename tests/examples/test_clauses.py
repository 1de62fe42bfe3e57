"""Word order of both languages in the demo corpus; the expected sentences were written by hand."""

from __future__ import annotations

import english_syntax as en
import german_syntax as de
import pytest
from clause import Clause, sentence
from declension import INDEFINITE, NO_DETERMINER
from grammar_words import HER, HIS, MY, OUR, modal, phrase, verb
from lexicon import BE, FUTURE, MUST_NOT, NOUNS, Pair, Preposition
from nominals import HE, I_PRONOUN, SHE, THEY, NounPhrase, prepositional, relative_pronoun

INTO, IN = Preposition("into", "in", "acc"), Preposition("in", "in", "dat")
YESTERDAY = Pair("yesterday", "gestern")


@pytest.mark.parametrize(
    ("clause", "english", "german"),
    [
        (Clause(phrase("man"), verb("open"), accusative=phrase("window", adj="dirty")),
         "The man opens the dirty window.", "Der Mann macht das schmutzige Fenster auf."),
        (Clause(phrase("man"), verb("open"), "past", accusative=phrase("door"), front=YESTERDAY),
         "Yesterday the man opened the door.", "Gestern hat der Mann die Tür aufgemacht."),
        (Clause(SHE, verb("pick up"), modal=modal("will"), accusative=HE, time=Pair("tomorrow", "morgen")),
         "She wants to pick him up tomorrow.", "Sie will ihn morgen abholen."),
        (Clause(SHE, verb("pick up"), accusative=phrase("child", HER, number="pl")),
         "She picks up her children.", "Sie holt ihre Kinder ab."),
        (Clause(I_PRONOUN, verb("give"), "past", accusative=phrase("apple"), dative=phrase("child")),
         "I gave the child the apple.", "Ich habe dem Kind den Apfel gegeben."),
        (Clause(phrase("boy"), verb("introduce"), accusative=SHE, dative=phrase("teacher")),
         "The boy introduces her to the teacher.", "Der Junge stellt sie dem Lehrer vor."),
        (Clause(THEY, verb("help"), "past", dative=phrase("neighbour", OUR)),
         "They helped our neighbour.", "Sie haben unserem Nachbarn geholfen."),
        (Clause(HE, verb("go"), "past", complement=prepositional(INTO, phrase("garden"))),
         "He went into the garden.", "Er ist in den Garten gegangen."),
        (Clause(HE, verb("sleep"), adjunct=prepositional(IN, phrase("garden"))),
         "He sleeps in the garden.", "Er schläft im Garten."),
        (Clause(HE, verb("go"), complement=prepositional(INTO, phrase("house")), negated=True),
         "He does not go into the house.", "Er geht nicht ins Haus."),
        (Clause(SHE, verb("buy"), accusative=phrase("coat", INDEFINITE), negated=True),
         "She does not buy a coat.", "Sie kauft keinen Mantel."),
        (Clause(SHE, verb("buy"), accusative=phrase("coat"), negated=True),
         "She does not buy the coat.", "Sie kauft den Mantel nicht."),
        (Clause(SHE, verb("eat"), modal=MUST_NOT, accusative=phrase("apple", NO_DETERMINER, number="pl"), negated=True),
         "She must not eat apples.", "Sie darf keine Äpfel essen."),
        (Clause(phrase("dog"), verb("eat", "fressen"), accusative=phrase("bread")),
         "The dog eats the bread.", "Der Hund frisst das Brot."),
        (Clause(phrase("man"), verb("hurry"), "past", front=YESTERDAY),
         "Yesterday the man hurried.", "Gestern hat sich der Mann beeilt."),
        (Clause(I_PRONOUN, verb("rest"), modal=FUTURE), "I will rest.", "Ich werde mich ausruhen."),
        (Clause(HE, BE, "past", complement=Pair("at home", "zu Hause")), "He was at home.", "Er war zu Hause."),
    ],
)  # fmt: skip
def test_main_clauses(clause: Clause, english: str, german: str) -> None:
    assert sentence(en.declarative(clause), de.verb_second(clause)) == Pair(english, german)


@pytest.mark.parametrize(
    ("clause", "english", "german"),
    [
        (Clause(SHE, verb("call"), accusative=phrase("policeman")),
         "she calls the policeman", "sie den Polizisten anruft"),
        (Clause(SHE, verb("call"), "past", accusative=HE), "she called him", "sie ihn angerufen hat"),
        (Clause(THEY, verb("get up"), modal=modal("muss")), "they must get up", "sie aufstehen müssen"),
        (Clause(phrase("woman"), verb("be interested"),
                complement=prepositional(Preposition("in", "für", "acc"), phrase("machine"))),
         "the woman is interested in the machine", "sich die Frau für die Maschine interessiert"),
    ],
)  # fmt: skip
def test_subordinate_clauses(clause: Clause, english: str, german: str) -> None:
    assert (en.declarative(clause), de.verb_final(clause)) == (english, german)


@pytest.mark.parametrize(
    ("clause", "english", "german"),
    [
        (Clause(I_PRONOUN, verb("close"), accusative=phrase("suitcase", HIS)),
         "to close his suitcase", "seinen Koffer zuzumachen"),
        (Clause(I_PRONOUN, verb("rest")), "to rest", "mich auszuruhen"),
        (Clause(SHE, verb("wait"), complement=prepositional(Preposition("for", "auf", "acc"), I_PRONOUN)),
         "to wait for me", "auf mich zu warten"),
    ],
)  # fmt: skip
def test_infinitive_clauses(clause: Clause, english: str, german: str) -> None:
    assert (en.infinitive(clause), de.infinitive(clause)) == (english, german)


def test_questions() -> None:
    polar = Clause(phrase("woman"), verb("tidy up"), "past", accusative=phrase("kitchen"))
    assert en.interrogative(polar) == "did the woman tidy up the kitchen"
    assert de.verb_first(polar) == "hat die Frau die Küche aufgeräumt"
    where = Clause(HE, verb("drive")).with_front(Pair("where", "wohin"), "complement")
    assert (en.interrogative(where), de.verb_second(where)) == ("where does he drive", "wohin fährt er")


def test_relative_clauses() -> None:
    pronoun = relative_pronoun(phrase("car"))
    bought = Clause(phrase("brother", MY), verb("buy"), "past", accusative=pronoun)
    bought = bought.with_pronoun_in_front(pronoun, "accusative")
    words = Pair(en.declarative(bought), f", {de.verb_final(bought)} ,")
    car = NounPhrase(NOUNS["car"], determiner=phrase("car").determiner, postmodifier=words)
    old = Clause(car, BE, complement=Pair("old", "alt"))
    assert sentence(en.declarative(old), de.verb_second(old)) == Pair(
        "The car that my brother bought is old.", "Das Auto, das mein Bruder gekauft hat, ist alt."
    )
    women = relative_pronoun(phrase("woman", number="pl"))
    helped = Clause(I_PRONOUN, verb("help"), dative=women).with_pronoun_in_front(women, "dative")
    assert (en.declarative(helped), de.verb_final(helped)) == ("whom I help", "denen ich helfe")
