"""Random clauses: a verb, arguments that fit it, and adverbials that fit the tense."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import lexicon
from clause import Clause
from declension import INDEFINITE
from lexicon import BE, FUTURE, NOTHING, PAIRS, Case, Pair, Preposition, Tense, Verb, numeral, places
from nominals import EXPLETIVE_IT, Name, Nominal, NounPhrase, Pronoun, prepositional
from phrase_sampling import PhraseSampler, Reference

_FRAMES = (
    (34, "transitive"), (9, "dative"), (11, "ditransitive"), (10, "prepositional"), (13, "intransitive"),
    (10, "motion"), (6, "placement"), (7, "position"),
)  # fmt: skip
#: What the clauses of longer sentences are made of.
SHORT_FRAMES = ((3, "transitive"), (2, "intransitive"), (1, "dative"), (1, "prepositional"))
_COPULA_SUBJECTS = (
    "human", "human", "animal", "furniture", "clothing", "building", "room", "vehicle", "device", "readable",
    "utensil", "drink", "food", "tall", "event", "openable",
)  # fmt: skip
_BESIDE_PEOPLE = (
    Preposition("next to", "neben", "dat"), Preposition("behind", "hinter", "dat"),
    Preposition("in front of", "vor", "dat"),
)  # fmt: skip
_OLDEST_CHILD = 15
#: Sections of the table of places; half of the places are interiors.
LOCATIONS = ("interiors", "interiors", "sites")
AT_HOME = Pair("at home", "zu Hause")


class ClauseSampler(PhraseSampler):
    """Draws clauses."""

    def verb(
        self, frames: Sequence[tuple[int, str]] = _FRAMES, suits: Callable[[Verb], bool] = lambda verb: True
    ) -> Verb:
        """Return a verb that suits; its frame is chosen first, so that rare ones come up."""
        while True:
            frame = self.choose_weighted(frames)
            verb = self.choose([entry for entry in lexicon.VERBS if entry.frame == frame])
            if suits(verb):
                return verb

    def clause(
        self, verb: Verb | None = None, *, subject: Nominal | None = None, accusative: Nominal | None = None,
        dative: Nominal | None = None, complement: Pair | None = None, tense: Tense | None = None,
        modals: bool = True, negatable: bool = True, brief: bool = False,
    ) -> Clause:  # fmt: skip
        """Return a clause with what is given; a ``brief`` one has short phrases and no adverbials."""
        if verb is None:
            verb = self.verb(suits=lambda entry: tense != "past" or entry.past_is_clear)
        negated = negatable and self.chance(13)
        # What a negation refers to is unclear next to quantifiers, so all the rest is definite.
        reference: Reference = "definite" if negated else "any"
        if subject is None:
            known: Reference = "definite" if negated or verb.is_of_things else "subject"
            subject = self.subject(verb.subjects, known, brief=brief)
        clause = Clause(subject, verb, negated=negated, accusative=accusative, dative=dative)
        clause = self._with_objects(clause, reference, brief=brief)
        if complement is None:
            complement = self._complement(clause, reference, brief=brief)
        clause = replace(clause, complement=complement)
        clause = self._with_tense(clause, tense, modals=modals)
        return clause if brief else self._with_adverbials(clause)

    def _with_objects(self, clause: Clause, reference: Reference, *, brief: bool) -> Clause:
        verb, frame = clause.verb, clause.verb.frame
        if frame in ("dative", "ditransitive") and clause.dative is None:
            recipients = verb.objects if frame == "dative" else ("human",)
            dative = self.object(recipients, clause.subject, reference, brief=brief or frame == "ditransitive")
            clause = replace(clause, dative=dative)
        if frame in ("transitive", "ditransitive", "placement") and clause.accusative is None:
            accusative = self._accusative(clause, brief=brief or frame != "transitive")
            clause = replace(clause, accusative=accusative)
        return clause

    def _accusative(self, clause: Clause, *, brief: bool) -> Nominal:
        indefinite = "indefinite" in clause.verb.flags
        reference: Reference = "negatable" if clause.negated else "indefinite" if indefinite else "any"
        if "human" not in clause.verb.objects:
            return self.noun_phrase(clause.verb.objects, reference, brief=brief)
        nominal = self.object(clause.verb.objects, clause.subject, reference, brief=brief)
        # Two pronouns that may be the same person, as in "introduces him to him", are confusing.
        if nominal.is_pronoun and clause.dative is not None and clause.dative.is_pronoun:
            return self.name()
        return nominal

    def _complement(self, clause: Clause, reference: Reference, *, brief: bool) -> Pair:
        verb, definite = clause.verb, clause.negated
        if verb.governs:
            return prepositional(verb.governs, self.object(verb.objects, clause.subject, reference, brief=brief))
        case: Case = "dat" if verb.frame == "position" else "acc"
        if verb.frame == "motion":
            animal = isinstance(clause.subject, NounPhrase) and clause.subject.belongs_to("animal")
            relations = places("travel") if animal else places(*verb.where, case=case)  # no animals in museums
            return self.direction(relations, definite=definite)
        if verb.english.base == "sit" and self.chance(35):
            neighbor = self.object(("human",), clause.subject, "definite", brief=True)
            return prepositional(self.choose(_BESIDE_PEOPLE), neighbor)
        hung = clause.accusative or clause.subject
        if verb.english.base == "hang" and isinstance(hung, NounPhrase) and hung.noun.english == "picture":
            return self.place(places("walls", case=case), definite=definite)
        return self.place(places(*verb.where, case=case), definite=definite) if verb.where else NOTHING

    def _with_tense(self, clause: Clause, tense: Tense | None, *, modals: bool) -> Clause:
        verb = clause.verb
        sentient = verb.has_person or verb.subjects == ("animal",)
        draw = self.below(100)
        if modals and draw < 12 and tense != "past" and not verb.is_of_things:
            return replace(clause, modal=FUTURE)
        if modals and draw < 27 and sentient and verb.is_deliberate:
            suitable = [entry for entry in lexicon.MODALS if tense is None or entry.tense == tense]
            modal = self.choose([entry for entry in suitable if not (clause.negated and entry is lexicon.HAD_TO)])
            return replace(clause, modal=lexicon.MUST_NOT if modal is lexicon.MUST and clause.negated else modal)
        if verb.is_of_things:
            tense = "present"
        elif tense is None:
            tense = "past" if draw >= 60 else "present"
        clause = replace(clause, tense=tense)
        return replace(clause, modal=FUTURE) if _hides_its_tense(clause) else clause

    def _with_adverbials(self, clause: Clause) -> Clause:
        verb, modal = clause.verb, clause.modal
        stative = "stative" in verb.flags
        if not clause.negated and self.chance(30):
            clause = replace(clause, adjunct=self._adjunct(clause))
        # "Every day he does not sleep" is an odd way to say that he never does.
        habitual = clause.negated and modal is None and clause.tense == "present"
        if self.chance(38) and not (stative or habitual):
            tense = modal.tense if modal else clause.tense
            future = modal is not None and tense == "present"
            time = self.time(tense, future=future, durative="durative" in verb.flags and modal is None)
            # "The man did not buy the car yesterday" leaves open what is denied.
            if clause.negated or self.chance(45):
                return clause.with_front(time)
            return replace(clause, time=time)
        if not clause.negated and modal is not FUTURE and self.chance(14) and not stative:
            return replace(clause, frequency=self.choose(PAIRS["frequency"]))
        return clause

    def _adjunct(self, clause: Clause) -> Pair:
        verb = clause.verb
        if verb.english.base in ("buy", "bake", "cook", "draw", "order", "build") and self.chance(50):
            person = self.object(("human",), clause.subject, "any", brief=True)
            return prepositional(Preposition("for", "für", "acc"), person)
        if "place" in verb.flags and self.chance(65):
            return self.place(places(*LOCATIONS))
        social = verb.frame == "motion" or ("durative" in verb.flags and verb.frame == "intransitive")
        if social and verb.subjects == ("human",):
            together = self.chance(70)
            preposition = Preposition("with", "mit", "dat") if together else Preposition("without", "ohne", "acc")
            return prepositional(preposition, self.object(("human",), clause.subject, "definite", brief=True))
        return NOTHING

    def copular_clause(self, *, brief: bool = False, subject: Nominal | None = None) -> Clause:
        """Return a clause with *be*: a property, a comparison, a profession or an age."""
        past, negated = self.chance(25), self.chance(15)
        if subject is None:
            subject = self.subject((self.choose(_COPULA_SUBJECTS),), "definite", brief=brief)
        predicate = self.predicate(subject, brief=brief)
        return Clause(subject, BE, "past" if past else "present", complement=predicate, negated=negated)

    def predicate(self, subject: Nominal, *, brief: bool = False) -> Pair:
        """Return a predicate that makes sense of ``subject``."""
        draw = self.below(100)
        adjective = subject.adjective if isinstance(subject, NounPhrase) else None
        if not isinstance(subject, NounPhrase) or subject.belongs_to("human"):
            gender = _natural_gender(subject)
            if gender and draw < 30:
                noun = self.choose_noun(lexicon.PROFESSIONS)
                english = NounPhrase(noun, determiner=INDEFINITE).english("nom")
                return Pair(english, noun.feminine if gender == "f" else noun.german)
            if draw < 42 and not (adjective and adjective.dimension == "age"):
                young = isinstance(subject, NounPhrase) and subject.belongs_to("young")
                age = numeral(self.between(2, _OLDEST_CHILD) if young else self.between(_OLDEST_CHILD + 1, 99))
                return Pair(f"{age.english} years old", f"{age.german} Jahre alt")
            if draw < 48:
                return AT_HOME
        if isinstance(subject, NounPhrase):
            if draw > 72 and not brief and not subject.belongs_to("mass"):
                comparison = self._comparison(subject)
                if comparison:
                    return comparison
            adjective = self.adjective_for(subject.noun, besides=subject.adjective)
            if adjective:
                return _as_predicate(adjective)
        return _as_predicate(self.choose(lexicon.TEMPORARY_STATES))

    def _comparison(self, subject: NounPhrase) -> Pair:
        """Return *older than* or *as old as* with something of the same kind."""
        adjective = self.adjective_for(subject.noun, gradable=True, besides=subject.adjective)
        if adjective is None:
            return NOTHING
        shared = [entry for entry in subject.noun.classes if entry in adjective.classes]
        standard = replace(self.noun_phrase(shared[:1], "definite", brief=True), adjective=None)
        english, german = standard.english("acc"), standard.german("nom")
        if self.chance(35):
            return Pair(f"as {adjective.english} as {english}", f"so {adjective.german} wie {german}")
        return Pair(f"{adjective.english_comparative} than {english}", f"{adjective.german_comparative} als {german}")

    def circumstance(self, tense: Tense | None, *, progressive: bool = True, modals: bool = False) -> Clause:
        """Return a short clause that can be a reason, condition or time for another."""
        draw = self.below(100)
        if draw < 25:
            return self._weather(tense or "present", progressive=progressive)
        if draw < 45:
            subject = self.subject(("human",), "definite", brief=True)
            state = _as_predicate(self.choose(lexicon.TEMPORARY_STATES))
            return Clause(subject, BE, tense or "present", complement=state)
        return self.clause(tense=tense, modals=modals, brief=True)

    def _weather(self, tense: Tense, *, progressive: bool) -> Clause:
        """Return *it is cold*, *it is raining* or, not ``progressive``, *it rains*."""
        if self.chance(40):
            verbs = lexicon.SPECIAL_VERBS["weather"]
            return Clause(EXPLETIVE_IT, self.choose(verbs[2:] if progressive else verbs[:2]), tense)
        return Clause(EXPLETIVE_IT, BE, tense, complement=self.choose(PAIRS["weather"]))


def _as_predicate(adjective: lexicon.Adjective) -> Pair:
    return Pair(adjective.english, adjective.german)


def _natural_gender(nominal: Nominal) -> lexicon.Gender | None:
    """Return the sex that the English words show, which a German profession needs."""
    if nominal.number == "pl" or nominal.person != 3:
        return None
    if isinstance(nominal, NounPhrase):
        return "m" if nominal.belongs_to("male") else "f" if nominal.belongs_to("female") else None
    return nominal.gender if isinstance(nominal, Name | Pronoun) else None


def _hides_its_tense(clause: Clause) -> bool:
    """Return whether English present and past are spelled alike, as in *they read*."""
    verb = clause.verb.english
    if clause.modal or clause.negated or verb.past != verb.base:
        return False
    return clause.tense == "past" or not clause.is_third_singular
