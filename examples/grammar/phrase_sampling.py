"""Random noun phrases, places and times that make sense."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import declension
import lexicon
from declension import DEFINITE, INDEFINITE, NO_DETERMINER, POSSESSIVES, Determiner
from lexicon import PAIRS, Adjective, Noun, Number, Pair, PlaceRelation, Preposition, nouns_of, numeral
from nominals import PERSONAL_PRONOUNS, Coordination, Name, Nominal, NounPhrase, prepositional
from random_source import RandomSource

_SMALL_NUMERAL = 12
_LARGE_NUMERAL = 99
_POSSESSIBLE = (
    "readable", "possession", "container", "clothing", "vehicle", "animal", "kin", "furniture", "device", "room",
)  # fmt: skip
#: What nobody has forty of.
_FEW = ("kin", "building", "furniture", "vehicle", "room", "landscape", "part", "device", "clothing")

#: Which determiners a noun phrase may have: any but *every*, *all* and *no*; any but *no*; definite ones; indefinite
#: ones and *no*; definite ones, or so indefinite that negation makes the phrase *kein*.
Reference = Literal["any", "subject", "definite", "indefinite", "negatable"]

_Weighted = list[tuple[int, Determiner]]


class PhraseSampler(RandomSource):
    """Draws noun phrases and adverbials; no noun is used twice in a sentence."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._used: list[str] = []

    def start_sentence(self) -> None:
        """Forget the nouns and names of the last sentence."""
        self._used.clear()

    def choose_noun(self, candidates: Sequence[Noun]) -> Noun:
        """Return one of ``candidates``, if possible one that is new in this sentence."""
        chosen = self.choose(candidates)
        for _ in range(10):
            if chosen.english not in self._used:
                break
            chosen = self.choose(candidates)
        self._used.append(chosen.english)
        return chosen

    def name(self) -> Name:
        """Return a name that is new in this sentence."""
        form, gender = self.choose([entry for entry in lexicon.NAMES if entry[0] not in self._used])
        self._used.append(form)
        return Name(form, gender)

    def adjective_for(
        self, head: Noun, *, gradable: bool = False, besides: Adjective | None = None
    ) -> Adjective | None:
        """Return an adjective that makes sense with ``head`` and another adjective, if there is one."""
        fitting = [
            entry
            for entry in lexicon.ADJECTIVES
            if head.belongs_to(*entry.classes)
            and (entry.english_comparative or not gradable)
            and (besides is None or entry.dimension != besides.dimension)
        ]
        return self.choose(fitting) if fitting else None

    def noun_phrase(self, classes: Sequence[str], reference: Reference = "any", *, brief: bool = False) -> NounPhrase:
        """Return a noun phrase with a noun of one of ``classes``."""
        return self.phrase_with(self.choose_noun(nouns_of(*classes)), reference, brief=brief)

    def phrase_with(
        self, head: Noun, reference: Reference = "any", *, brief: bool = False, number: Number | None = None
    ) -> NounPhrase:
        """Return a noun phrase with a noun."""
        if number is None:
            number = "sg" if head.belongs_to("mass", "unique") or self.chance(66) else "pl"
        adjective = self.adjective_for(head) if self.chance(15 if brief else 38) else None
        if head.belongs_to("part") and " " not in head.english and not brief and self.chance(50):
            whole = self._definite_singular("building")
            return NounPhrase(head, number, possessor=whole, of_possessor=True, adjective=adjective)
        possessible = not brief and head.belongs_to(*_POSSESSIBLE) and reference != "indefinite"
        if possessible and self.chance(16):
            return NounPhrase(head, number, possessor=self._possessor(), adjective=adjective)
        determiner = self._determiner(head, number, reference)
        return NounPhrase(head, number, determiner, adjective, self._numeral(head, number, determiner, reference))

    def _definite_singular(self, noun_class: str) -> NounPhrase:
        return self.phrase_with(self.choose_noun(nouns_of(noun_class)), "definite", brief=True, number="sg")

    def _numeral(self, head: Noun, number: Number, determiner: Determiner, reference: Reference) -> int | None:
        if number == "sg" or reference == "negatable":
            return None
        if determiner is NO_DETERMINER and self.chance(70):
            large = not head.belongs_to(*_FEW) and self.chance(65)
            return self.between(2, _LARGE_NUMERAL if large else _SMALL_NUMERAL)
        if (determiner is DEFINITE or determiner in POSSESSIVES) and self.chance(15):
            return self.between(2, _SMALL_NUMERAL)
        return None

    def _possessor(self) -> NounPhrase | Name:
        if self.chance(45):
            return self.name()
        head = self.choose_noun(nouns_of("human"))
        own = not head.belongs_to("unpossessed") and (head.belongs_to("kin") or self.chance(30))
        return NounPhrase(head, "sg", self.choose(POSSESSIVES) if own else DEFINITE)

    def _determiner(self, head: Noun, number: Number, reference: Reference) -> Determiner:
        definite = self._definite_determiners(head)
        if reference == "definite" or (head.belongs_to("kin") and reference != "indefinite"):
            return self.choose_weighted(definite)
        indefinite = _indefinite_determiners(head, number, reference)
        return self.choose_weighted(indefinite if reference == "indefinite" else definite + indefinite)

    def _definite_determiners(self, head: Noun) -> _Weighted:
        possessive = self.choose(POSSESSIVES)
        if head.belongs_to("kin"):
            return [(10, DEFINITE), (80, possessive)]
        if head.belongs_to("unpossessed"):
            # *Meine Frau* is not any woman but my wife.
            return [(70, DEFINITE), (10, declension.DEMONSTRATIVE)]
        return [(48, DEFINITE), (22, possessive), (10, declension.DEMONSTRATIVE)]

    def subject(self, classes: Sequence[str], reference: Reference = "subject", *, brief: bool = False) -> Nominal:
        """Return a subject: a pronoun, a name, a coordination or a noun phrase."""
        if "human" in classes:
            draw = self.below(100)
            if draw < (45 if brief else 25):
                return self.choose_weighted([(2 if entry.person == 1 else 3, entry) for entry in PERSONAL_PRONOUNS])
            if draw < (65 if brief else 37):
                return self.name()
            if draw < (67 if brief else 43):
                first = self.name() if self.chance(40) else self._definite_singular("human")
                return Coordination(first, self._definite_singular("human"))
            if draw > 97 and not brief:
                owned = self.choose_noun(nouns_of("building", "vehicle", "animal"))
                possession = NounPhrase(owned, "sg", DEFINITE, self.adjective_for(owned))
                return NounPhrase(lexicon.NOUNS["owner"], possessor=possession, of_possessor=True)
        return self.noun_phrase(classes, reference, brief=brief)

    def object(self, classes: Sequence[str], subject: Nominal, reference: Reference, *, brief: bool = False) -> Nominal:
        """Return an object; with a subject in the first person none in the first person."""
        if "human" in classes:
            draw = self.below(100)
            if draw < (40 if brief else 24):
                return self.choose([entry for entry in PERSONAL_PRONOUNS if not entry.person == subject.person == 1])
            if draw < (55 if brief else 36):
                return self.name()
        return self.noun_phrase(classes, reference, brief=brief)

    def place(self, relations: Sequence[PlaceRelation], *, definite: bool = False) -> Pair:
        """Return a prepositional phrase of one of ``relations``."""
        relation = self.choose(relations)
        head = self.choose_noun(relation.nouns)
        determiner = DEFINITE
        draw = self.below(100)
        if draw < 14:
            if not head.belongs_to("landscape", "unpossessed"):
                determiner = self.choose(POSSESSIVES)
        elif draw < 22 and not definite:
            determiner = INDEFINITE
        elif draw < 30:
            determiner = declension.DEMONSTRATIVE
        adjective = self.adjective_for(head) if self.chance(22) else None
        return prepositional(relation.preposition, NounPhrase(head, "sg", determiner, adjective))

    def direction(self, relations: Sequence[PlaceRelation], *, definite: bool = False) -> Pair:
        """Return where somebody goes, or on which way."""
        draw = self.below(100)
        if draw < 6:
            return Pair("home", "nach Hause")
        if draw < 16:
            person = self.noun_phrase(("human",), "definite", brief=True)
            return prepositional(Preposition("to", "zu", "dat"), person)
        return self.place(relations, definite=definite)

    def time(self, tense: lexicon.Tense, *, future: bool, durative: bool) -> Pair:
        """Return a time that goes with the tense; ``future`` includes modals."""
        draw = self.below(100)
        if draw < 14:
            hour = numeral(self.between(2, 12))
            return Pair(f"at {hour.english} o'clock", f"um {hour.german} Uhr")
        if draw < 26:
            return self.choose(PAIRS["circumstances"])
        count = numeral(self.between(2, _SMALL_NUMERAL))
        unit = self.choose(PAIRS["units"])
        if tense == "past" and not draw < 38 and durative and draw < 60:
            unit = self.choose(PAIRS["units"][:2])
            return Pair(f"for {count.english} {unit.english}", f"{count.german} {unit.german} lang")
        english, german = f"{count.english} {unit.english}", f"{count.german} {lexicon.dative_plural(unit.german)}"
        if tense == "past":
            ago = Pair(f"{english} ago", f"vor {german}")
            return ago if draw < 38 else self.choose(PAIRS["past"] + PAIRS["weekdays"])
        if future:
            later = Pair(f"in {english}", f"in {german}")
            return later if draw < 38 else self.choose(PAIRS["future"] + PAIRS["weekdays"])
        return self.choose(PAIRS["present"])


def _indefinite_determiners(head: Noun, number: Number, reference: Reference) -> _Weighted:
    mass = head.belongs_to("mass")
    bare = INDEFINITE if number == "sg" and not mass else NO_DETERMINER
    if reference == "negatable":
        return [(30, bare)]
    if mass:
        return [
            (60, bare),
            (50 if head.belongs_to("abstract") and reference == "indefinite" else 0, declension.NEGATIVE),
        ]
    # *No* is rare, because it does not go well with much else in a sentence.
    negative = (8 if reference == "indefinite" else 0, declension.NEGATIVE)
    universal = (6 if reference == "subject" else 0, declension.EVERY if number == "sg" else declension.ALL)
    return [(28, bare), negative, universal, *([(8, declension.MANY), (8, declension.SOME)] if number == "pl" else [])]
