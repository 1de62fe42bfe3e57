"""Words of the demo's lexicon, looked up as the tests of its grammar name them."""

from __future__ import annotations

import lexicon
from declension import DEFINITE, POSSESSIVES, Determiner
from lexicon import Adjective, Modal, Number, Verb
from nominals import NounPhrase

MY, HIS, HER, OUR = POSSESSIVES[:4]


def adjective(english: str) -> Adjective:
    return next(entry for entry in lexicon.ADJECTIVES if entry.english == english)


def verb(english: str, german: str = "") -> Verb:
    return next(
        entry
        for entry in lexicon.VERBS
        if f"{entry.english.base} {entry.english.particle}".strip() == english
        and (not german or entry.german.full_infinitive == german)
    )


def modal(german_third: str) -> Modal:
    return next(entry for entry in lexicon.MODALS if entry.third == german_third)


def phrase(english: str, determiner: Determiner = DEFINITE, *, adj: str = "", number: Number = "sg") -> NounPhrase:
    return NounPhrase(lexicon.NOUNS[english], number, determiner, adjective(adj) if adj else None)
