"""Words of the demo's lexicon, looked up as the tests of its grammar name them."""

from __future__ import annotations

from declension import DEFINITE, POSSESSIVES, Determiner
from lexicon import Adjective, Case, Modal, Number, Verb
from modifiers import ADJECTIVES
from noun_phrase import NounPhrase
from nouns import noun
from verbs import CONTROL_VERBS, FUTURE, MODALS, MUST_NOT, VERBS

NOMINATIVE, ACCUSATIVE, DATIVE, GENITIVE = Case.NOMINATIVE, Case.ACCUSATIVE, Case.DATIVE, Case.GENITIVE
SINGULAR, PLURAL = Number.SINGULAR, Number.PLURAL
MY, HIS, HER, OUR = POSSESSIVES[:4]


def adjective(english: str) -> Adjective:
    return next(entry for entry in ADJECTIVES if entry.english == english)


def verb(english: str, german: str = "") -> Verb:
    return next(
        entry
        for entry in (*VERBS, *CONTROL_VERBS)
        if f"{entry.english.base} {entry.english.particle}".strip() == english
        and (not german or entry.german.full_infinitive == german)
    )


def modal(german_third: str) -> Modal:
    return next(entry for entry in (*MODALS, MUST_NOT, FUTURE) if entry.german_third == german_third)


def phrase(english: str, determiner: Determiner = DEFINITE, *, adj: str = "", number: Number = SINGULAR) -> NounPhrase:
    return NounPhrase(noun(english), number, determiner, adjective(adj) if adj else None)
