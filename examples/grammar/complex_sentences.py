"""Sentences of more than one clause: subordination, infinitive clauses and coordination."""

from __future__ import annotations

from dataclasses import replace

import english_syntax as en
import german_syntax as de
from clause import Clause, sentence
from clause_sampling import AT_HOME, SHORT_FRAMES
from lexicon import FUTURE, NOTHING, SPECIAL_VERBS, TENSES, VERBS, Pair, Tense, Verb
from questions import QuestionSampler

_CONJUNCTIONS = ((5, "because"), (3, "although"), (2, "while"), (2, "before"), (3, "if"), (3, "when"))
_GERMAN_CONJUNCTIONS = {
    "because": "weil", "although": "obwohl", "while": "während", "before": "bevor", "if": "wenn", "when": "wenn",
}  # fmt: skip
*_CLAUSAL_VERBS, _ASK = SPECIAL_VERBS["clausal"]
_KNOW = _CLAUSAL_VERBS[0]
(_STAY,) = SPECIAL_VERBS["staying"]


class ComplexSentenceSampler(QuestionSampler):
    """Draws sentences of more than one clause."""

    def adverbial_clause(self) -> Pair:
        """Return a main clause with a clause of reason, concession, condition or time."""
        conjunction = self.choose_weighted(_CONJUNCTIONS)
        tense = self.choose(TENSES)
        if conjunction == "if":
            tense = "present"
        subordinate, main = self._subordinate(conjunction, tense), self._main(conjunction, tense)
        if subordinate.modal and main.modal is FUTURE:
            main = replace(main, modal=None)
        german_conjunction = _GERMAN_CONJUNCTIONS[conjunction]
        if conjunction == "when" and tense == "past":
            german_conjunction = "als"  # for a single event
        english = f"{conjunction} {en.declarative(subordinate)}"
        german = f"{german_conjunction} {de.verb_final(subordinate)}"
        if self.chance(45):
            # The subordinate clause is the first part of the main clause, so the verb is next.
            return sentence(f"{english} , {en.declarative(main)}", f"{german} , {de.verb_first(main)}")
        return sentence(f"{en.declarative(main)} {english}", f"{de.verb_second(main)} , {german}")

    def _subordinate(self, conjunction: str, tense: Tense) -> Clause:
        if conjunction in ("while", "before"):
            verb = self.verb(SHORT_FRAMES, lambda entry: _is_event(entry) and entry.has_person)
            return self.clause(verb, tense=tense, modals=False, negatable=False, brief=True)
        conditional = conjunction in ("if", "when")
        return self.circumstance(tense, progressive=not conditional, modals=not conditional)

    def _main(self, conjunction: str, tense: Tense) -> Clause:
        if conjunction == "if" and self.chance(60):
            return replace(self.clause(tense="present", modals=False, brief=True), modal=FUTURE)
        if conjunction != "before" and self.chance(12):
            subject = self.subject(("human",), "definite", brief=True)
            return Clause(subject, _STAY, tense, complement=AT_HOME)
        if conjunction in ("because", "although") and self.chance(35):
            return self.clause(tense=tense, brief=True)
        factual = conjunction in ("while", "before", "when")
        return self.clause(tense=tense, modals=False, negatable=not factual, brief=True)

    def object_clause(self) -> Pair:
        """Return a sentence with an object clause after *that* or an indirect question."""
        draw = self.below(100)
        tense: Tense = "past" if self.chance(40) else "present"
        subject = self.subject(("human",), "definite", brief=self.chance(70))
        if draw < 55:
            matrix = Clause(subject, self.choose(_CLAUSAL_VERBS), tense)
            conjunction, embedded = Pair("that", "dass"), self._embedded(tense)
        else:
            asking = self.chance(50)
            matrix = Clause(subject, _ASK if asking else _KNOW, tense, negated=not asking)
            if draw < 75:
                conjunction, embedded = Pair("whether", "ob"), replace(self._embedded(tense), negated=False)
            else:
                conjunction = NOTHING
                embedded = self.adverbial_question("past" if tense == "past" else None)
        return sentence(
            f"{en.declarative(matrix)} {conjunction.english} {en.declarative(embedded)}",
            f"{de.verb_second(matrix)} , {conjunction.german} {de.verb_final(embedded)}",
        )

    def _embedded(self, tense: Tense) -> Clause:
        if tense == "past":
            return self.circumstance("past", modals=True)
        if self.chance(25):
            return self.copular_clause(brief=True)
        return self.circumstance(None, modals=True)

    def infinitive_clause(self) -> Pair:
        """Return a sentence with a *zu* infinitive, as an object or of purpose."""
        purpose = self.chance(50)
        if purpose:
            verb = self._deliberate_verb((1, "motion"), (1, "transitive"))
            matrix = self.clause(verb, modals=self.chance(50), negatable=False, brief=True)
        else:
            subject = self.subject(("human",), "definite", brief=True)
            tense = self.choose(TENSES)
            matrix = Clause(subject, self.choose(SPECIAL_VERBS["control"]), tense)
        verb = self._deliberate_verb((4, "transitive"), (2, "dative"), (2, "prepositional"), (1, "intransitive"))
        clause = self.clause(verb, subject=matrix.subject, modals=False, negatable=False, brief=True)
        english, german = ("in order", "um") if purpose else ("", "")
        return sentence(
            f"{en.declarative(matrix)} {english} {en.infinitive(clause)}",
            f"{de.verb_second(matrix)} , {german} {de.infinitive(clause)}",
        )

    def _deliberate_verb(self, *frames: tuple[int, str]) -> Verb:
        frame = self.choose_weighted(frames)
        return self.choose(
            [entry for entry in VERBS if entry.frame == frame and entry.is_deliberate and entry.has_person]
        )

    def coordination(self) -> Pair:
        """Return two main clauses joined by *and* or *but*."""
        tense = self.choose(TENSES)
        first, second = self._conjunct(tense), self._conjunct(tense)
        while second.verb is first.verb:
            second = self._conjunct(tense)
        english, german = ("and", "und") if self.chance(50) else (", but", ", aber")
        return sentence(
            f"{en.declarative(first)} {english} {en.declarative(second)}",
            f"{de.verb_second(first)} {german} {de.verb_second(second)}",
        )

    def _conjunct(self, tense: Tense) -> Clause:
        verb = self.verb(SHORT_FRAMES, lambda entry: entry.past_is_clear)
        return self.clause(verb, tense=tense, modals=False, brief=True)


def _is_event(verb: Verb) -> bool:
    return "stative" not in verb.flags and verb.past_is_clear
