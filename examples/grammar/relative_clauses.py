"""Relative clauses, and the sentences around them."""

from __future__ import annotations

from dataclasses import replace

import english_syntax as en
import german_syntax as de
from clause import Clause, sentence
from clause_sampling import LOCATIONS, ClauseSampler
from declension import DEMONSTRATIVE, POSSESSIVES
from lexicon import BE, LIVE, TENSES, VERBS, WORK, Pair, Preposition, Verb, places
from nominals import NounPhrase, Pronoun, prepositional, relative_pronoun

_ANTECEDENTS = (
    "human", "human", "animal", "possession", "readable", "vehicle", "clothing", "building", "furniture", "room",
)  # fmt: skip


def statement(clause: Clause) -> Pair:
    """Return a main clause as a sentence."""
    return sentence(en.declarative(clause), de.verb_second(clause))


class RelativeClauseSampler(ClauseSampler):
    """Draws sentences with a relative clause."""

    def relative_sentence(self) -> Pair:
        """Return a main clause whose subject or object has a relative clause."""
        antecedent = self._antecedent(self.choose(_ANTECEDENTS))
        if self.chance(45):
            clause = self.copular_clause(subject=antecedent, brief=True)
            return statement(replace(clause, subject=self._with_relative_clause(antecedent)))
        verbs = [entry for entry in VERBS if antecedent.belongs_to(*entry.subjects) and entry.frame != "position"]
        if verbs and self.chance(40):
            clause = self.clause(self.choose(verbs), subject=antecedent, negatable=False, brief=True)
            return statement(replace(clause, subject=self._with_relative_clause(antecedent)))
        # After an object, nothing may come between the relative clause and the end of the sentence.
        verbs = [entry for entry in _verbs_with_object("transitive", antecedent) if not entry.german.prefix]
        clause = self.clause(
            self.choose(verbs), accusative=antecedent, tense="present", modals=False, negatable=False, brief=True
        )
        if clause.modal:
            return self.relative_sentence()
        return statement(replace(clause, accusative=self._with_relative_clause(antecedent)))

    def _antecedent(self, noun_class: str) -> NounPhrase:
        """Return a noun phrase; what is identified already is not identified again by a relative clause."""
        phrase = self.noun_phrase((noun_class,), brief=True)
        while phrase.determiner in (*POSSESSIVES, DEMONSTRATIVE):
            phrase = self.noun_phrase((noun_class,), brief=True)
        return phrase

    def _with_relative_clause(self, antecedent: NounPhrase) -> NounPhrase:
        clause = self._relative_clause(antecedent)
        words = Pair(en.declarative(clause), f", {de.verb_final(clause)} ,")
        return replace(antecedent, postmodifier=words)

    def _relative_clause(self, antecedent: NounPhrase) -> Clause:
        pronoun, draw = relative_pronoun(antecedent), self.below(100)
        if antecedent.belongs_to("human") and draw < 36:
            person_verb = self.verb(suits=lambda entry: entry.has_person)
            return self.clause(person_verb, subject=pronoun, brief=True).with_pronoun_in_front(pronoun, "subject")
        if antecedent.belongs_to("human") and draw < 50:
            return self._as_dative(pronoun)
        if antecedent.belongs_to("human") and draw < 62:
            return self._as_possessor(pronoun)
        preposition, verb = self._preposition_and_verb(antecedent) if draw < 80 else (None, None)
        if preposition:
            words = prepositional(preposition, pronoun)
            return self.clause(verb, complement=words, brief=True).with_front(words, "complement")
        verbs = _verbs_with_object("transitive", antecedent)
        if verbs:
            clause = self.clause(self.choose(verbs), accusative=pronoun, brief=True)
            return clause.with_pronoun_in_front(pronoun, "accusative")
        tense = self.choose(TENSES)
        clause = Clause(pronoun, BE, tense, complement=self.predicate(antecedent, brief=True))
        return clause.with_pronoun_in_front(pronoun, "subject")

    def _as_dative(self, pronoun: Pronoun) -> Clause:
        frame = self.choose(("dative", "ditransitive"))
        verb = self.choose([entry for entry in VERBS if entry.frame == frame and entry.subjects == ("human",)])
        english = pronoun.english_after_preposition()
        words = Pair(f"to {english}" if frame == "ditransitive" else english, pronoun.german("dat"))
        return self.clause(verb, dative=pronoun, brief=True).with_front(words, "dative")

    def _as_possessor(self, pronoun: Pronoun) -> Clause:
        """Return *whose old car* with a predicate."""
        owned = self.noun_phrase((self.choose(("kin", "vehicle", "animal", "building")),), brief=True)
        adjective = owned.adjective if self.chance(50) else None
        subject = NounPhrase(owned.noun, owned.number, adjective=adjective, possessor=pronoun)
        tense = self.choose(TENSES)
        return Clause(subject, BE, tense, complement=self.predicate(replace(owned, adjective=None), brief=True))

    def _preposition_and_verb(self, antecedent: NounPhrase) -> tuple[Preposition | None, Verb | None]:
        """Return what the antecedent can be the place or the prepositional object of."""
        for sections, verb in ((LIVE.where, LIVE), (LOCATIONS, WORK)):
            for relation in places(*sections):
                if antecedent.noun in relation.nouns and self.chance(60):
                    return relation.preposition, verb
        verbs = _verbs_with_object("prepositional", antecedent)
        chosen = self.choose(verbs) if verbs else None
        return (chosen.governs, chosen) if chosen else (None, None)


def _verbs_with_object(frame: str, antecedent: NounPhrase) -> list[Verb]:
    return [
        entry
        for entry in VERBS
        if entry.frame == frame and antecedent.belongs_to(*entry.objects) and "indefinite" not in entry.flags
    ]
