"""Sentences of more than one clause: subordination, infinitive clauses and coordination."""

from __future__ import annotations

from dataclasses import dataclass, replace

from clause import Clause
from clause_sampling import ClauseSampler, has_unmistakable_past
from english_syntax import english_declarative, english_infinitive
from german_syntax import german_infinitive, german_verb_final, german_verb_first, german_verb_second
from lexicon import Frame, NounClass, Tense, Verb
from phrase_sampling import Reference
from questions import QuestionSampler
from sentence import SentencePair, sentence_pair
from verbs import ASK, CLAUSAL_VERBS, CONTROL_VERBS, FUTURE, KNOW, VERBS

_HUMAN = (NounClass.HUMAN,)


@dataclass(frozen=True)
class _Conjunction:
    """A subordinating conjunction; the German one can depend on the tense."""

    english: str
    german_present: str
    german_past: str
    conditional: bool = False

    def german(self, tense: Tense) -> str:
        return self.german_past if tense is Tense.PAST else self.german_present


_BECAUSE = _Conjunction("because", "weil", "weil")
_ALTHOUGH = _Conjunction("although", "obwohl", "obwohl")
_WHILE = _Conjunction("while", "während", "während")
_BEFORE = _Conjunction("before", "bevor", "bevor")
_IF = _Conjunction("if", "wenn", "wenn", conditional=True)
# A single event in the past needs another conjunction in German.
_WHEN = _Conjunction("when", "wenn", "als", conditional=True)
_CONJUNCTIONS = (
    (5, _BECAUSE),
    (3, _ALTHOUGH),
    (2, _WHILE),
    (2, _BEFORE),
    (3, _IF),
    (3, _WHEN),
)


class ComplexSentenceSampler:
    """Draws sentences of more than one clause."""

    def __init__(self, clauses: ClauseSampler, questions: QuestionSampler) -> None:
        self.clauses = clauses
        self.questions = questions
        self.phrases = clauses.phrases
        self.source = clauses.source

    def adverbial_clause(self) -> SentencePair:
        """Return a main clause with a clause of reason, concession, condition or time."""
        conjunction = self.source.choose_weighted(_CONJUNCTIONS)
        tense = self.source.choose((Tense.PRESENT, Tense.PAST))
        if conjunction is _IF:
            tense = Tense.PRESENT
        subordinate = self._subordinate(conjunction, tense)
        main = self._main(conjunction, tense)
        if subordinate.modal and main.modal is FUTURE:
            main = replace(main, modal=None)
        english = f"{conjunction.english} {english_declarative(subordinate)}"
        german = f"{conjunction.german(tense)} {german_verb_final(subordinate)}"
        if self.source.chance(45):
            # The subordinate clause fills the first position, so the verb of the main clause is next.
            return sentence_pair(f"{english} , {english_declarative(main)}", f"{german} , {german_verb_first(main)}")
        return sentence_pair(f"{english_declarative(main)} {english}", f"{german_verb_second(main)} , {german}")

    def _subordinate(self, conjunction: _Conjunction, tense: Tense) -> Clause:
        if conjunction in (_WHILE, _BEFORE):
            frames = ((3, Frame.TRANSITIVE), (2, Frame.INTRANSITIVE), (1, Frame.DATIVE), (1, Frame.PREPOSITIONAL))
            verb = self.clauses.verb(frames)
            while verb.stative or NounClass.HUMAN not in verb.subjects or not has_unmistakable_past(verb):
                verb = self.clauses.verb(frames)
            return self.clauses.clause(verb, tense=tense, modals=False, negatable=False, brief=True, adverbials=False)
        return self.clauses.circumstance(
            tense, progressive=not conjunction.conditional, modals=not conjunction.conditional
        )

    def _main(self, conjunction: _Conjunction, tense: Tense) -> Clause:
        if conjunction is _IF and self.source.chance(60):
            clause = self.clauses.clause(tense=Tense.PRESENT, modals=False, brief=True, adverbials=False)
            return replace(clause, modal=FUTURE)
        if conjunction is not _BEFORE and self.source.chance(12):
            return self.clauses.staying_at_home(tense)
        if conjunction in (_BECAUSE, _ALTHOUGH) and self.source.chance(35):
            return self.clauses.clause(tense=tense, brief=True, adverbials=False)
        factual = conjunction in (_WHILE, _BEFORE, _WHEN)
        return self.clauses.clause(tense=tense, modals=False, negatable=not factual, brief=True, adverbials=False)

    def object_clause(self) -> SentencePair:
        """Return a sentence with an object clause after *that* or an indirect question."""
        draw = self.source.below(100)
        tense = Tense.PAST if self.source.chance(40) else Tense.PRESENT
        subject = self.phrases.subject(_HUMAN, Reference.DEFINITE, brief=self.source.chance(70))
        if draw < 55:
            matrix = Clause(subject, self.source.choose(CLAUSAL_VERBS), tense)
            embedded = self._embedded(tense)
            english, german = f"that {english_declarative(embedded)}", f"dass {german_verb_final(embedded)}"
        else:
            asking = self.source.chance(50)
            matrix = Clause(subject, ASK if asking else KNOW, tense, negated=not asking)
            if draw < 75:
                embedded = replace(self._embedded(tense), negated=False)
                english, german = f"whether {english_declarative(embedded)}", f"ob {german_verb_final(embedded)}"
            else:
                embedded = self.questions.adverbial_question_clause(Tense.PAST if tense is Tense.PAST else None)
                english, german = english_declarative(embedded), german_verb_final(embedded)
        return sentence_pair(f"{english_declarative(matrix)} {english}", f"{german_verb_second(matrix)} , {german}")

    def _embedded(self, matrix_tense: Tense) -> Clause:
        if matrix_tense is Tense.PAST:
            return self.clauses.circumstance(Tense.PAST, modals=True)
        if self.source.chance(25):
            return self.clauses.copular_clause(brief=True)
        return self.clauses.circumstance(None, modals=True)

    def infinitive_clause(self) -> SentencePair:
        """Return a sentence with a *zu* infinitive, as an object or of purpose."""
        if self.source.chance(50):
            return self._purpose()
        subject = self.phrases.subject(_HUMAN, Reference.DEFINITE, brief=True)
        tense = self.source.choose((Tense.PRESENT, Tense.PAST))
        matrix = Clause(subject, self.source.choose(CONTROL_VERBS), tense)
        infinitive = self._infinitive(matrix)
        return sentence_pair(
            f"{english_declarative(matrix)} {english_infinitive(infinitive)}",
            f"{german_verb_second(matrix)} , {german_infinitive(infinitive)}",
        )

    def _purpose(self) -> SentencePair:
        verb = self._purposeful_verb(((1, Frame.MOTION), (1, Frame.TRANSITIVE)))
        matrix = self.clauses.clause(verb, modals=self.source.chance(50), negatable=False, brief=True, adverbials=False)
        infinitive = self._infinitive(matrix)
        return sentence_pair(
            f"{english_declarative(matrix)} in order to {english_infinitive(infinitive).removeprefix('to ')}",
            f"{german_verb_second(matrix)} , um {german_infinitive(infinitive)}",
        )

    def _infinitive(self, matrix: Clause) -> Clause:
        verb = self._purposeful_verb(
            ((4, Frame.TRANSITIVE), (2, Frame.DATIVE), (2, Frame.PREPOSITIONAL), (1, Frame.INTRANSITIVE))
        )
        return self.clauses.clause(
            verb, subject=matrix.subject, modals=False, negatable=False, brief=True, adverbials=False
        )

    def _purposeful_verb(self, frames: tuple[tuple[int, Frame], ...]) -> Verb:
        frame = self.source.choose_weighted(frames)
        return self.source.choose(
            [
                v
                for v in VERBS
                if v.frame is frame and not (v.stative or v.involuntary) and NounClass.HUMAN in v.subjects
            ]
        )

    def coordination(self) -> SentencePair:
        """Return two main clauses joined by *and* or *but*."""
        tense = self.source.choose((Tense.PRESENT, Tense.PAST))
        first, second = self._conjunct(tense), self._conjunct(tense)
        while second.verb is first.verb:
            second = self._conjunct(tense)
        english, german = english_declarative(second), german_verb_second(second)
        if self.source.chance(50):
            return sentence_pair(
                f"{english_declarative(first)} and {english}", f"{german_verb_second(first)} und {german}"
            )
        return sentence_pair(
            f"{english_declarative(first)} , but {english}", f"{german_verb_second(first)} , aber {german}"
        )

    def _conjunct(self, tense: Tense) -> Clause:
        frames = ((3, Frame.TRANSITIVE), (2, Frame.INTRANSITIVE), (1, Frame.DATIVE), (1, Frame.PREPOSITIONAL))
        verb = self.clauses.verb(frames)
        while not has_unmistakable_past(verb):
            verb = self.clauses.verb(frames)
        return self.clauses.clause(verb, tense=tense, modals=False, brief=True, adverbials=False)
