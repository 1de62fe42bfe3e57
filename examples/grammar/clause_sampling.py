"""Random clauses: a verb, arguments that fit it, and adverbials that fit the tense."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import adverbials as places
from clause import (
    Age,
    Argument,
    Clause,
    Comparison,
    Complement,
    FixedComplement,
    Fronted,
    PredicateAdjective,
    PredicateProfession,
    PrepositionalPhrase,
)
from lexicon import Adverbial, Frame, Gender, Modal, NounClass, Number, Tense, Verb
from modifiers import FREQUENCY_ADVERBS, LARGEST_NUMERAL, TEMPORARY_STATES
from noun_phrase import Name, Nominal, NounPhrase
from nouns import PROFESSIONS
from phrase_sampling import PhraseSampler, Reference
from pronouns import EXPLETIVE_IT, PersonalPronoun
from verbs import BE, FUTURE, MODALS, MUST, MUST_NOT, RAIN, RAINING, SNOW, SNOWING, STAY, VERBS

_HUMAN = (NounClass.HUMAN,)
_FRAME_WEIGHTS = (
    (34, Frame.TRANSITIVE),
    (9, Frame.DATIVE),
    (11, Frame.DITRANSITIVE),
    (10, Frame.PREPOSITIONAL),
    (13, Frame.INTRANSITIVE),
    (10, Frame.MOTION),
    (6, Frame.PLACEMENT),
    (7, Frame.POSITION),
)
_COPULA_SUBJECTS = (
    NounClass.HUMAN, NounClass.HUMAN, NounClass.ANIMAL, NounClass.FURNITURE, NounClass.CLOTHING, NounClass.BUILDING,
    NounClass.ROOM, NounClass.VEHICLE, NounClass.DEVICE, NounClass.READABLE, NounClass.UTENSIL, NounClass.DRINK,
    NounClass.FOOD, NounClass.TALL, NounClass.EVENT, NounClass.OPENABLE,
)  # fmt: skip
_OLDEST_CHILD = 15
_FOR_SOMEBODY = ("buy", "bake", "cook", "draw", "order", "build")
_DIRECTIONS = {
    "drive": places.LONG_DIRECTIONS,
    "hike": places.LONG_DIRECTIONS,
    "come": places.COMING_DIRECTIONS,
}
_WEATHER_STATES = (("cold", "kalt"), ("warm", "warm"), ("dark", "dunkel"), ("late", "spät"))


class ClauseSampler:
    """Draws clauses; ``phrases`` draws what they consist of."""

    def __init__(self, phrases: PhraseSampler) -> None:
        self.phrases = phrases
        self.source = phrases.source

    def verb(self, frames: Sequence[tuple[int, Frame]] = _FRAME_WEIGHTS) -> Verb:
        """Return a verb, choosing the frame first so that rare frames are not swamped."""
        frame = self.source.choose_weighted(frames)
        return self.source.choose([entry for entry in VERBS if entry.frame is frame])

    def clause(
        self, verb: Verb | None = None, *, subject: Nominal | None = None, accusative: Nominal | None = None,
        dative: Nominal | None = None, complement: Complement | None = None, tense: Tense | None = None,
        modals: bool = True, negatable: bool = True, brief: bool = False, adverbials: bool = True,
    ) -> Clause:  # fmt: skip
        """Return a clause with ``verb``; arguments that are given are taken over as they are."""
        if verb is None:
            verb = self.verb()
            while tense is Tense.PAST and not has_unmistakable_past(verb):
                verb = self.verb()
        negated = negatable and self.source.chance(13)
        # The scope of a negation is unclear beside quantifiers, so all the rest must be definite.
        reference = Reference.DEFINITE if negated else Reference.ANY
        if subject is None:
            inanimate = not set(verb.subjects) & {NounClass.HUMAN, NounClass.ANIMAL}
            known = Reference.DEFINITE if negated or inanimate else Reference.SUBJECT
            subject = self.phrases.subject(verb.subjects, known, brief=brief)
        clause = Clause(subject, verb, negated=negated, accusative=accusative, dative=dative, complement=complement)
        clause = self._with_arguments(clause, reference, brief=brief)
        clause = self._with_tense(clause, tense, modals=modals)
        if adverbials:
            clause = self._with_adverbials(clause, brief=brief)
        return clause

    def _with_arguments(self, clause: Clause, reference: Reference, *, brief: bool) -> Clause:
        verb, subject, frame = clause.verb, clause.subject, clause.verb.frame
        object_reference = Reference.NEGATABLE if clause.negated else reference
        if verb.indefinite_object:
            object_reference = Reference.NEGATABLE if clause.negated else Reference.INDEFINITE
        if frame in (Frame.DATIVE, Frame.DITRANSITIVE) and clause.dative is None:
            recipients = verb.objects if frame is Frame.DATIVE else _HUMAN
            short = brief or frame is Frame.DITRANSITIVE
            clause = replace(clause, dative=self.phrases.object(recipients, subject, reference, brief=short))
        if frame in (Frame.TRANSITIVE, Frame.DITRANSITIVE, Frame.PLACEMENT) and clause.accusative is None:
            short = brief or frame is not Frame.TRANSITIVE
            accusative = self._accusative(clause, object_reference, brief=short)
            clause = replace(clause, accusative=accusative)
        if clause.complement is None:
            clause = replace(clause, complement=self._complement(clause, reference, brief=brief))
        return clause

    def _accusative(self, clause: Clause, reference: Reference, *, brief: bool) -> Nominal:
        if NounClass.HUMAN not in clause.verb.objects:
            return self.phrases.noun_phrase(clause.verb.objects, reference, brief=brief)
        nominal = self.phrases.object(clause.verb.objects, clause.subject, reference, brief=brief)
        # Two pronouns that may be the same person, as in "introduces him to him", are confusing.
        if nominal.is_pronoun and clause.dative is not None and clause.dative.is_pronoun:
            return self.phrases.name()
        return nominal

    def _complement(self, clause: Clause, reference: Reference, *, brief: bool) -> Complement | None:
        verb, base = clause.verb, clause.verb.english.base
        definite = clause.negated
        match verb.frame:
            case Frame.PREPOSITIONAL:
                assert verb.preposition is not None
                nominal = self.phrases.object(verb.objects, clause.subject, reference, brief=brief)
                return PrepositionalPhrase(verb.preposition, nominal)
            case Frame.MOTION:
                relations = _DIRECTIONS.get(base, places.DIRECTIONS_ON_FOOT)
                if isinstance(clause.subject, NounPhrase) and clause.subject.belongs_to(NounClass.ANIMAL):
                    # Animals are kept out of the museums.
                    relations = places.LONG_DIRECTIONS
                return self.phrases.direction(relations, definite=definite)
            case Frame.PLACEMENT:
                return self.phrases.place(_spots(verb, clause.accusative, goal=True), definite=definite)
            case Frame.POSITION:
                return self._position(clause, definite=definite)
            case _:
                return None

    def _position(self, clause: Clause, *, definite: bool) -> Complement:
        base = clause.verb.english.base
        if base in ("live", "stay"):
            return self.phrases.place(places.RESIDENCES, definite=definite)
        if base != "sit":
            return self.phrases.place(_spots(clause.verb, clause.subject, goal=False), definite=definite)
        if self.source.chance(35):
            neighbour = self.phrases.object(_HUMAN, clause.subject, Reference.DEFINITE, brief=True)
            return PrepositionalPhrase(self.source.choose(places.BESIDE_PEOPLE), neighbour)
        return self.phrases.place(places.SEATS + places.LOCATIONS[:1], definite=definite)

    def _with_tense(self, clause: Clause, tense: Tense | None, *, modals: bool) -> Clause:
        verb = clause.verb
        # Things do not want or have to do anything.
        sentient = NounClass.HUMAN in verb.subjects or verb.subjects == (NounClass.ANIMAL,)
        past_is_ambiguous = _is_inanimate_position(verb)
        draw = self.source.below(100)
        if modals and draw < 12 and tense is not Tense.PAST and not past_is_ambiguous:
            return replace(clause, modal=FUTURE)
        if modals and draw < 27 and sentient and not (verb.stative or verb.involuntary):
            return replace(clause, modal=self.modal(clause.negated, tense))
        if tense is None:
            tense = Tense.PAST if draw >= 60 else Tense.PRESENT
        if past_is_ambiguous:
            tense = Tense.PRESENT
        clause = replace(clause, tense=tense)
        return replace(clause, modal=FUTURE) if _tense_is_invisible(clause) else clause

    def modal(self, negated: bool, tense: Tense | None = None) -> Modal:
        """Return a modal of the given tense, or of either, that can be negated if need be."""
        suitable = [entry for entry in MODALS if tense is None or entry.tense is tense]
        modal = self.source.choose([entry for entry in suitable if entry.negatable or not negated])
        return MUST_NOT if modal is MUST and negated else modal

    def _with_adverbials(self, clause: Clause, *, brief: bool) -> Clause:
        verb = clause.verb
        if not brief and not clause.negated and self.source.chance(30):
            clause = replace(clause, adjunct=self._adjunct(clause))
        # "Every day he does not sleep" is an odd way to say that he never does.
        habitual = clause.negated and clause.modal is None and clause.tense is Tense.PRESENT
        if self.source.chance(10 if brief else 38) and not (verb.stative or habitual):
            time = self.time(clause)
            # "The man did not buy the car yesterday" leaves open what is denied.
            if clause.negated or self.source.chance(45):
                return replace(clause, fronted=Fronted(time.english, time.german, Argument.NONE))
            return replace(clause, time=time)
        if not clause.negated and clause.modal is not FUTURE and self.source.chance(14) and not verb.stative:
            return replace(clause, frequency=self.source.choose(FREQUENCY_ADVERBS))
        return clause

    def time(self, clause: Clause) -> Adverbial:
        """Return a time for ``clause``."""
        tense = clause.modal.tense if clause.modal else clause.tense
        future = clause.modal is not None and clause.modal.tense is Tense.PRESENT
        durative = clause.verb.durative and clause.modal is None
        return self.phrases.time(tense, future=future, durative=durative)

    def _adjunct(self, clause: Clause) -> Complement | None:
        verb = clause.verb
        if verb.english.base in _FOR_SOMEBODY and self.source.chance(50):
            return PrepositionalPhrase(
                places.FOR, self.phrases.object(_HUMAN, clause.subject, Reference.ANY, brief=True)
            )
        if verb.allows_place and self.source.chance(65):
            return self.phrases.place(places.LOCATIONS)
        social = verb.frame is Frame.MOTION or (verb.durative and verb.frame is Frame.INTRANSITIVE)
        if social and verb.subjects == _HUMAN:
            preposition = places.WITH if self.source.chance(70) else places.WITHOUT
            companion = self.phrases.object(_HUMAN, clause.subject, Reference.DEFINITE, brief=True)
            return PrepositionalPhrase(preposition, companion)
        return None

    def copular_clause(self, *, brief: bool = False, subject: Nominal | None = None) -> Clause:
        """Return a clause with *be*: a property, a comparison, a profession or an age."""
        past, negated = self.source.chance(25), self.source.chance(15)
        if subject is None:
            classes = (self.source.choose(_COPULA_SUBJECTS),)
            subject = self.phrases.subject(classes, Reference.DEFINITE, brief=brief)
        tense = Tense.PAST if past else Tense.PRESENT
        return Clause(subject, BE, tense, complement=self.predicate(subject, brief=brief), negated=negated)

    def predicate(self, subject: Nominal, *, brief: bool = False) -> Complement:
        """Return a predicate that makes sense of ``subject``."""
        draw = self.source.below(100)
        if not isinstance(subject, NounPhrase) or subject.belongs_to(NounClass.HUMAN):
            gender = natural_gender(subject)
            if gender is not None and draw < 30:
                return PredicateProfession(self.phrases.choose_noun(PROFESSIONS), gender)
            adjective = subject.adjective if isinstance(subject, NounPhrase) else None
            if draw < 42 and not (adjective and adjective.dimension == "age"):
                return Age(self._age(subject))
            if draw < 48:
                return FixedComplement("at home", "zu Hause")
        if isinstance(subject, NounPhrase):
            if draw > 72 and not brief and subject.noun.mass is False:
                comparison = self._comparison(subject)
                if comparison:
                    return comparison
            adjective = self.phrases.adjective_for(subject.noun, besides=subject.adjective)
            if adjective:
                return PredicateAdjective(adjective)
        return PredicateAdjective(self.source.choose(TEMPORARY_STATES))

    def _age(self, subject: Nominal) -> int:
        if isinstance(subject, NounPhrase) and subject.belongs_to(NounClass.YOUNG):
            return self.source.between(2, _OLDEST_CHILD)
        return self.source.between(_OLDEST_CHILD + 1, LARGEST_NUMERAL)

    def _comparison(self, subject: NounPhrase) -> Comparison | None:
        adjective = self.phrases.adjective_for(subject.noun, gradable=True, besides=subject.adjective)
        if adjective is None:
            return None
        shared = [entry for entry in subject.noun.classes if entry in adjective.classes]
        if not shared:
            return None
        standard = self.phrases.noun_phrase(shared[:1], Reference.DEFINITE, brief=True)
        return Comparison(adjective, replace(standard, adjective=None), equal=self.source.chance(35))

    def weather_clause(self, tense: Tense, *, progressive: bool = True) -> Clause:
        """Return, for example, *it is cold*, *it is raining* or (not ``progressive``) *it rains*."""
        if self.source.chance(40):
            verbs = (RAINING, SNOWING) if progressive else (RAIN, SNOW)
            return Clause(EXPLETIVE_IT, self.source.choose(verbs), tense)
        english, german = self.source.choose(_WEATHER_STATES)
        return Clause(EXPLETIVE_IT, BE, tense, complement=FixedComplement(english, german))

    def circumstance(self, tense: Tense | None, *, progressive: bool = True, modals: bool = False) -> Clause:
        """Return a short clause that can be a reason, condition or time for another."""
        draw = self.source.below(100)
        if draw < 25:
            return self.weather_clause(tense or Tense.PRESENT, progressive=progressive)
        if draw < 45:
            subject = self.phrases.subject(_HUMAN, Reference.DEFINITE, brief=True)
            state = PredicateAdjective(self.source.choose(TEMPORARY_STATES))
            return Clause(subject, BE, tense or Tense.PRESENT, complement=state)
        return self.clause(tense=tense, modals=modals, brief=True, adverbials=False)

    def staying_at_home(self, tense: Tense) -> Clause:
        """Return a clause about staying at home."""
        subject = self.phrases.subject(_HUMAN, Reference.DEFINITE, brief=True)
        return Clause(subject, STAY, tense, complement=FixedComplement("at home", "zu Hause"))


def _spots(verb: Verb, located: Nominal | None, *, goal: bool) -> Sequence[places.PlaceRelation]:
    """Return where ``located`` can be put or found."""
    if verb.english.base == "hang":
        if isinstance(located, NounPhrase) and located.noun.english == "picture":
            return places.PICTURES_AS_GOAL if goal else places.PICTURES_AS_PLACE
        return places.HANGING_AS_GOAL if goal else places.HANGING_AS_PLACE
    spots = places.SPOTS_AS_GOAL if goal else places.SPOTS_AS_PLACE
    if verb.english.base in ("lay", "lie"):
        return (*spots, places.CONTAINERS_AS_GOAL if goal else places.CONTAINERS_AS_PLACE)
    return spots


def natural_gender(nominal: Nominal) -> Gender | None:
    """Return the sex the English words reveal, as needed for a German profession."""
    if nominal.number is Number.PLURAL or nominal.person != 3:
        return None
    if isinstance(nominal, Name | PersonalPronoun):
        return nominal.gender
    return nominal.noun.natural_gender if isinstance(nominal, NounPhrase) else None


def has_unmistakable_past(verb: Verb) -> bool:
    """Tell whether the English past can be neither a present tense nor another verb's past."""
    return verb.english.past != verb.english.base and not _is_inanimate_position(verb)


def _is_inanimate_position(verb: Verb) -> bool:
    # *Lay* and *hung* can be past tenses of two verbs each, so these verbs are kept to the present.
    return verb.frame is Frame.POSITION and not set(verb.subjects) & {NounClass.HUMAN, NounClass.ANIMAL}


def _tense_is_invisible(clause: Clause) -> bool:
    """Tell whether English present and past are spelled alike, as in *they read*."""
    verb = clause.verb.english
    if clause.modal or clause.negated or verb.past != verb.base:
        return False
    return clause.tense is Tense.PAST or not clause.subject_is_third_singular
