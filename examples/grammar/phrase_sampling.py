"""Random noun phrases, places and times that respect the semantic classes."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import adverbials as places
from adverbials import PlaceRelation
from clause import FixedComplement, PrepositionalPhrase
from declension import (
    ALL,
    DEFINITE,
    DEMONSTRATIVE,
    EVERY,
    INDEFINITE,
    MANY,
    NEGATIVE,
    NO_DETERMINER,
    POSSESSIVES,
    SOME,
    Determiner,
)
from lexicon import Adjective, Adverbial, Noun, NounClass, Number, Tense
from modifiers import ADJECTIVES, LARGEST_NUMERAL
from noun_phrase import Coordination, Name, Nominal, NounPhrase
from nouns import NAMES, noun, nouns_of
from pronouns import PERSONAL_PRONOUNS, PersonalPronoun
from random_source import RandomSource

_SMALL_NUMERAL = 12
_POSSESSIBLE = (
    NounClass.READABLE, NounClass.POSSESSION, NounClass.CONTAINER, NounClass.CLOTHING, NounClass.VEHICLE,
    NounClass.ANIMAL, NounClass.KIN, NounClass.FURNITURE, NounClass.DEVICE, NounClass.ROOM,
)  # fmt: skip
_FEW = (
    NounClass.KIN, NounClass.BUILDING, NounClass.FURNITURE, NounClass.VEHICLE, NounClass.ROOM, NounClass.LANDSCAPE,
    NounClass.PART, NounClass.DEVICE, NounClass.CLOTHING,
)  # fmt: skip
_OWNED = (NounClass.BUILDING, NounClass.VEHICLE, NounClass.ANIMAL)


_Weighted = list[tuple[int, Determiner]]


class Reference(Enum):
    """Which determiners a noun phrase may have."""

    ANY = "any but every, all and no"
    SUBJECT = "any but no"
    DEFINITE = "definite, possessive or demonstrative"
    INDEFINITE = "indefinite, quantified or negative"
    NEGATABLE = "definite, or so indefinite that negation makes it kein"


class PhraseSampler:
    """Draws noun phrases and adverbials; within one sentence no noun is used twice."""

    def __init__(self, source: RandomSource) -> None:
        self.source = source
        self._used: list[str] = []

    def start_sentence(self) -> None:
        """Forget which nouns and names the previous sentence used."""
        self._used.clear()

    def choose_noun(self, candidates: Sequence[Noun]) -> Noun:
        """Return one of ``candidates``, if possible one that is new in this sentence."""
        chosen = self.source.choose(candidates)
        for _ in range(10):
            if chosen.english not in self._used:
                break
            chosen = self.source.choose(candidates)
        self._used.append(chosen.english)
        return chosen

    def name(self) -> Name:
        """Return a name that is new in this sentence."""
        form, gender = self.source.choose([entry for entry in NAMES if entry[0] not in self._used])
        self._used.append(form)
        return Name(form, gender)

    def adjective_for(
        self, head: Noun, *, gradable: bool = False, besides: Adjective | None = None
    ) -> Adjective | None:
        """Return an adjective that makes sense with ``head`` and beside another, if there is one."""
        fitting = [
            entry
            for entry in ADJECTIVES
            if head.belongs_to(entry.classes)
            and (entry.english_comparative or not gradable)
            and (besides is None or entry.dimension != besides.dimension)
        ]
        return self.source.choose(fitting) if fitting else None

    def noun_phrase(
        self, classes: Sequence[NounClass], reference: Reference = Reference.ANY, *, brief: bool = False
    ) -> NounPhrase:
        """Return a noun phrase whose noun is in one of ``classes``."""
        return self.phrase_with(self.choose_noun(nouns_of(*classes)), reference, brief=brief)

    def phrase_with(
        self, head: Noun, reference: Reference = Reference.ANY, *, brief: bool = False, number: Number | None = None
    ) -> NounPhrase:
        """Return a noun phrase with the given head noun."""
        if number is None:
            single = head.mass or head.belongs_to((NounClass.UNIQUE,))
            number = Number.SINGULAR if single or self.source.chance(66) else Number.PLURAL
        adjective = self.adjective_for(head) if self.source.chance(15 if brief else 38) else None
        is_part = head.belongs_to((NounClass.PART,)) and " " not in head.english
        if is_part and not brief and self.source.chance(50):
            whole = self.phrase_with(
                self.choose_noun(nouns_of(NounClass.BUILDING)), Reference.DEFINITE, brief=True, number=Number.SINGULAR
            )
            if whole.possessor is None:
                return NounPhrase(head, number, possessor=whole, of_possessor=True, adjective=adjective)
        possessible = not brief and head.belongs_to(_POSSESSIBLE) and reference is not Reference.INDEFINITE
        if possessible and self.source.chance(16):
            return NounPhrase(head, number, possessor=self._possessor(), adjective=adjective)
        determiner = self._determiner(head, number, reference)
        return NounPhrase(head, number, determiner, adjective, self._numeral(head, number, determiner, reference))

    def _numeral(self, head: Noun, number: Number, determiner: Determiner, reference: Reference) -> int | None:
        if number is Number.SINGULAR or reference is Reference.NEGATABLE:
            return None
        if determiner is NO_DETERMINER and self.source.chance(70):
            # Nobody carries forty sofas or builds fifty castles.
            large = not head.belongs_to(_FEW) and self.source.chance(65)
            return self.source.between(2, LARGEST_NUMERAL if large else _SMALL_NUMERAL)
        if (determiner is DEFINITE or determiner in POSSESSIVES) and self.source.chance(15):
            return self.source.between(2, _SMALL_NUMERAL)
        return None

    def _possessor(self) -> NounPhrase | Name:
        if self.source.chance(45):
            return self.name()
        head = self.choose_noun(nouns_of(NounClass.HUMAN))
        determiner = DEFINITE
        possessible = not head.belongs_to((NounClass.UNPOSSESSED,))
        if possessible and (head.belongs_to((NounClass.KIN,)) or self.source.chance(30)):
            determiner = self.source.choose(POSSESSIVES)
        return NounPhrase(head, Number.SINGULAR, determiner)

    def _determiner(self, head: Noun, number: Number, reference: Reference) -> Determiner:
        definite = self._definite_determiners(head)
        kin = head.belongs_to((NounClass.KIN,))
        if reference is Reference.DEFINITE or (kin and reference is not Reference.INDEFINITE):
            return self.source.choose_weighted(definite)
        indefinite = _indefinite_determiners(head, number, reference)
        if reference is Reference.INDEFINITE:
            return self.source.choose_weighted(indefinite)
        return self.source.choose_weighted(definite + indefinite)

    def _definite_determiners(self, head: Noun) -> _Weighted:
        possessive = self.source.choose(POSSESSIVES)
        if head.belongs_to((NounClass.KIN,)):
            return [(10, DEFINITE), (80, possessive)]
        if head.belongs_to((NounClass.UNPOSSESSED,)):
            # *Meine Frau* is not any woman but my wife.
            return [(70, DEFINITE), (10, DEMONSTRATIVE)]
        return [(48, DEFINITE), (22, possessive), (10, DEMONSTRATIVE)]

    def subject(
        self, classes: Sequence[NounClass], reference: Reference = Reference.SUBJECT, *, brief: bool = False
    ) -> Nominal:
        """Return a subject: a pronoun, a name, a coordination or a noun phrase."""
        if NounClass.HUMAN in classes:
            draw = self.source.below(100)
            if draw < (45 if brief else 25):
                return self.source.choose_weighted(
                    [(2 if pronoun.person == 1 else 3, pronoun) for pronoun in PERSONAL_PRONOUNS]
                )
            if draw < (65 if brief else 37):
                return self.name()
            if draw < (67 if brief else 43):
                return self._coordination()
            if draw > 97 and not brief:
                return self._owner()
        return self.noun_phrase(classes, reference, brief=brief)

    def object(
        self, classes: Sequence[NounClass], subject: Nominal, reference: Reference, *, brief: bool = False
    ) -> Nominal:
        """Return an object; a first person subject has no first person object."""
        if NounClass.HUMAN in classes:
            draw = self.source.below(100)
            if draw < (40 if brief else 24):
                return self.object_pronoun(subject)
            if draw < (55 if brief else 36):
                return self.name()
        return self.noun_phrase(classes, reference, brief=brief)

    def object_pronoun(self, subject: Nominal) -> PersonalPronoun:
        """Return a pronoun that cannot refer to a first person ``subject``."""
        pronouns = [entry for entry in PERSONAL_PRONOUNS if not entry.person == subject.person == 1]
        return self.source.choose(pronouns)

    def _coordination(self) -> Coordination:
        first = self.name() if self.source.chance(40) else self._person()
        return Coordination(first, self._person())

    def _person(self) -> NounPhrase:
        return self.phrase_with(
            self.choose_noun(nouns_of(NounClass.HUMAN)), Reference.DEFINITE, brief=True, number=Number.SINGULAR
        )

    def _owner(self) -> NounPhrase:
        owned = self.choose_noun(nouns_of(*_OWNED))
        possession = NounPhrase(owned, Number.SINGULAR, DEFINITE, self.adjective_for(owned))
        return NounPhrase(noun("owner"), Number.SINGULAR, possessor=possession, of_possessor=True)

    def place(self, relations: Sequence[PlaceRelation], *, definite: bool = False) -> PrepositionalPhrase:
        """Return a prepositional phrase built from one of ``relations``."""
        relation = self.source.choose(relations)
        head = self.choose_noun(relation.nouns)
        number = Number.SINGULAR
        determiner: Determiner = DEFINITE
        draw = self.source.below(100)
        if draw < 14:
            if not head.belongs_to((NounClass.LANDSCAPE, NounClass.UNPOSSESSED)):
                determiner = self.source.choose(POSSESSIVES)
        elif draw < 22 and not definite:
            determiner = INDEFINITE
        elif draw < 30:
            determiner = DEMONSTRATIVE
        adjective = self.adjective_for(head) if self.source.chance(22) else None
        return PrepositionalPhrase(relation.preposition, NounPhrase(head, number, determiner, adjective))

    def direction(
        self, relations: Sequence[PlaceRelation], *, definite: bool = False
    ) -> PrepositionalPhrase | FixedComplement:
        """Return the goal or path of a motion."""
        draw = self.source.below(100)
        if draw < 6:
            return FixedComplement("home", "nach Hause")
        if draw < 16:
            return PrepositionalPhrase(
                places.TO_PERSON, self.noun_phrase((NounClass.HUMAN,), Reference.DEFINITE, brief=True)
            )
        return self.place(relations, definite=definite)

    def time(self, tense: Tense, *, future: bool, durative: bool) -> Adverbial:
        """Return a time that goes with the tense; ``future`` includes modals."""
        draw = self.source.below(100)
        if draw < 14:
            return places.clock_time(self.source.between(2, places.LATEST_HOUR))
        if draw < 26:
            return self.source.choose(places.CIRCUMSTANCES)
        count = self.source.between(2, _SMALL_NUMERAL)
        unit = self.source.below(places.TIME_UNIT_COUNT)
        if tense is Tense.PAST:
            if draw < 38:
                return places.past_distance(count, unit)
            if durative and draw < 60:
                return places.duration(count, self.source.below(places.DURATION_UNIT_COUNT))
            return self.source.choose(places.PAST_TIMES + places.WEEKDAYS)
        if future:
            if draw < 38:
                return places.future_distance(count, unit)
            return self.source.choose(places.FUTURE_TIMES + places.WEEKDAYS)
        return self.source.choose(places.PRESENT_TIMES)


def _indefinite_determiners(head: Noun, number: Number, reference: Reference) -> _Weighted:
    if reference is Reference.NEGATABLE:
        return [(30, INDEFINITE if number is Number.SINGULAR and not head.mass else NO_DETERMINER)]
    if head.mass:
        negative = 50 if head.belongs_to((NounClass.ABSTRACT,)) else 0
        return [(60, NO_DETERMINER), (negative if reference is Reference.INDEFINITE else 0, NEGATIVE)]
    # *No* is used sparingly, because it does not go well with much else in a sentence.
    negative = 8 if reference is Reference.INDEFINITE else 0
    universal = 6 if reference is Reference.SUBJECT else 0
    if number is Number.SINGULAR:
        return [(28, INDEFINITE), (negative, NEGATIVE), (universal, EVERY)]
    return [(28, NO_DETERMINER), (negative, NEGATIVE), (universal, ALL), (8, MANY), (8, SOME)]
