"""Relative clauses: built around an antecedent, whose noun phrase then carries them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from adverbials import LOCATIONS, RESIDENCES
from clause import Argument, Clause, Fronted, PrepositionalPhrase
from clause_sampling import ClauseSampler
from declension import Declension, attributive_form
from english_syntax import english_declarative
from german_syntax import german_verb_final
from lexicon import Adjective, Case, Frame, Noun, NounClass, Number, Preposition, Tense, Verb
from noun_phrase import NounPhrase, join_words
from pronouns import RelativePronoun
from verbs import BE, LIVE, VERBS, WORK

_OWN_RELATIVE = (NounClass.KIN, NounClass.VEHICLE, NounClass.ANIMAL, NounClass.BUILDING)


@dataclass(frozen=True)
class RelativeClause:
    """A clause with a relative pronoun at its front, set off by commas in German only."""

    clause: Clause

    def english(self) -> str:
        """Return the English relative clause."""
        return english_declarative(self.clause)

    def german(self) -> str:
        """Return the German relative clause between commas."""
        return f", {german_verb_final(self.clause)} ,"


@dataclass(frozen=True)
class RelativePossession:
    """*whose old car*: the possessor is relative and leaves a strong adjective ending in German."""

    pronoun: RelativePronoun
    noun: Noun
    adjective: Adjective | None = None
    person: int = 3
    number: Number = Number.SINGULAR
    is_pronoun: bool = False

    def english(self, case: Case) -> str:
        """Return the English phrase."""
        adjective = self.adjective.english if self.adjective else ""
        return join_words("whose", adjective, self.noun.english_form(self.number))

    def german(self, case: Case) -> str:
        """Return the German phrase in ``case``."""
        adjective = ""
        if self.adjective:
            adjective = attributive_form(self.adjective, Declension.STRONG, case, self.noun.gender, self.number)
        possessor = self.pronoun.german(Case.GENITIVE)
        return join_words(possessor, adjective, self.noun.german_form(case, self.number))


class RelativeClauseSampler:
    """Draws relative clauses for a given antecedent."""

    def __init__(self, clauses: ClauseSampler) -> None:
        self.clauses = clauses
        self.phrases = clauses.phrases
        self.source = clauses.source

    def attach(self, antecedent: NounPhrase) -> NounPhrase:
        """Return ``antecedent`` with a relative clause that suits it."""
        return replace(antecedent, postmodifier=RelativeClause(self._clause(antecedent)))

    def _clause(self, antecedent: NounPhrase) -> Clause:
        pronoun = RelativePronoun.referring_to(antecedent)
        human = antecedent.belongs_to(NounClass.HUMAN)
        draw = self.source.below(100)
        if human and draw < 36:
            return self._as_subject(pronoun)
        if human and draw < 50:
            return self._as_dative(pronoun)
        if human and draw < 62:
            return self._as_possessor(pronoun)
        if draw < 80:
            clause = self._as_prepositional_object(antecedent, pronoun)
            if clause:
                return clause
        return self._as_accusative(antecedent, pronoun) or self._as_predicate(antecedent, pronoun)

    def _as_subject(self, pronoun: RelativePronoun) -> Clause:
        verb = self.clauses.verb()
        while NounClass.HUMAN not in verb.subjects:
            verb = self.clauses.verb()
        clause = self.clauses.clause(verb, subject=pronoun, brief=True, adverbials=False)
        form = Fronted(pronoun.english(Case.NOMINATIVE), pronoun.german(Case.NOMINATIVE), Argument.SUBJECT)
        return replace(clause, fronted=form)

    def _as_dative(self, pronoun: RelativePronoun) -> Clause:
        frame = self.source.choose((Frame.DATIVE, Frame.DITRANSITIVE))
        verb = self.source.choose([v for v in VERBS if v.frame is frame and v.subjects == (NounClass.HUMAN,)])
        clause = self.clauses.clause(verb, dative=pronoun, brief=True, adverbials=False)
        english = pronoun.english_after_preposition()
        if frame is Frame.DITRANSITIVE:
            english = f"to {english}"
        return replace(clause, fronted=Fronted(english, pronoun.german(Case.DATIVE), Argument.DATIVE))

    def _as_possessor(self, pronoun: RelativePronoun) -> Clause:
        owned = self.phrases.noun_phrase((self.source.choose(_OWN_RELATIVE),), brief=True)
        adjective = owned.adjective if self.source.chance(50) else None
        subject = RelativePossession(pronoun, owned.noun, adjective, number=owned.number)
        tense = self.source.choose((Tense.PRESENT, Tense.PAST))
        predicate = self.clauses.predicate(replace(owned, adjective=None), brief=True)
        return Clause(subject, BE, tense, complement=predicate)

    def _as_accusative(self, antecedent: NounPhrase, pronoun: RelativePronoun) -> Clause | None:
        verbs = _verbs_with_object(Frame.TRANSITIVE, antecedent)
        if not verbs:
            return None
        verb = self.source.choose(verbs)
        clause = self.clauses.clause(verb, accusative=pronoun, brief=True, adverbials=False)
        form = Fronted(pronoun.english(Case.ACCUSATIVE), pronoun.german(Case.ACCUSATIVE), Argument.ACCUSATIVE)
        return replace(clause, fronted=form)

    def _as_prepositional_object(self, antecedent: NounPhrase, pronoun: RelativePronoun) -> Clause | None:
        preposition, verb = self._preposition_and_verb(antecedent)
        if preposition is None or verb is None:
            return None
        phrase = PrepositionalPhrase(preposition, pronoun)
        clause = self.clauses.clause(verb, complement=phrase, brief=True, adverbials=False)
        return replace(clause, fronted=Fronted(phrase.english(), phrase.german(), Argument.COMPLEMENT))

    def _preposition_and_verb(self, antecedent: NounPhrase) -> tuple[Preposition | None, Verb | None]:
        for relations, verb in ((RESIDENCES, LIVE), (LOCATIONS, WORK)):
            for relation in relations:
                if antecedent.noun in relation.nouns and self.source.chance(60):
                    return relation.preposition, verb
        verbs = _verbs_with_object(Frame.PREPOSITIONAL, antecedent)
        if not verbs:
            return None, None
        chosen = self.source.choose(verbs)
        return chosen.preposition, chosen

    def _as_predicate(self, antecedent: NounPhrase, pronoun: RelativePronoun) -> Clause:
        form = Fronted(pronoun.english(Case.NOMINATIVE), pronoun.german(Case.NOMINATIVE), Argument.SUBJECT)
        tense = self.source.choose((Tense.PRESENT, Tense.PAST))
        predicate = self.clauses.predicate(antecedent, brief=True)
        return Clause(pronoun, BE, tense, complement=predicate, fronted=form)


def _verbs_with_object(frame: Frame, antecedent: NounPhrase) -> list[Verb]:
    return [
        verb
        for verb in VERBS
        if verb.frame is frame and antecedent.belongs_to(*verb.objects) and not verb.indefinite_object
    ]
