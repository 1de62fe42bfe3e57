"""Direct and indirect questions."""

from __future__ import annotations

from dataclasses import replace

from clause import Argument, Clause, Fronted
from clause_sampling import ClauseSampler
from declension import HOW_MANY, WHICH
from english_syntax import english_interrogative
from german_syntax import german_verb_first, german_verb_second
from lexicon import Case, Frame, NounClass, Number, Tense, Verb
from noun_phrase import NounPhrase
from nouns import nouns_of
from phrase_sampling import Reference
from pronouns import I_PRONOUN, WHAT, WHO, InterrogativePronoun
from sentence import SentencePair, sentence_pair
from verbs import BE, LIVE, VERBS

_HUMAN = NounClass.HUMAN
# English *where* is German *wo* for a place and *wohin* for a goal.
WHERE = Fronted("where", "wo", Argument.COMPLEMENT)
WHERE_TO = Fronted("where", "wohin", Argument.COMPLEMENT)
WHEN = Fronted("when", "wann", Argument.NONE)
WHY = Fronted("why", "warum", Argument.NONE)


class QuestionSampler:
    """Draws questions."""

    def __init__(self, clauses: ClauseSampler) -> None:
        self.clauses = clauses
        self.phrases = clauses.phrases
        self.source = clauses.source

    def polar_question(self) -> SentencePair:
        """Return a yes/no question."""
        if self.source.chance(25):
            clause = replace(self.clauses.copular_clause(), negated=False)
        else:
            clause = self.clauses.clause(negatable=False)
        while clause.subject is I_PRONOUN and clause.modal is None:
            # Nobody asks what only they can know.
            clause = self.clauses.clause(negatable=False)
        if clause.fronted:
            clause = replace(clause, fronted=None)
        return sentence_pair(english_interrogative(clause), german_verb_first(clause), "?")

    def constituent_question(self) -> SentencePair:
        """Return a question that begins with a question word."""
        build = self.source.choose_weighted(
            [
                (3, self.adverbial_question_clause),
                (2, self._subject_question),
                (2, self._object_question),
                (2, self._dative_question),
                (3, self._phrase_question),
            ]
        )
        clause = build()
        while clause.subject is I_PRONOUN:
            clause = build()
        return sentence_pair(english_interrogative(clause), german_verb_second(clause), "?")

    def adverbial_question_clause(self, tense: Tense | None = None) -> Clause:
        """Return a clause with *where*, *when* or *why* at its front."""
        draw = self.source.below(100)
        if draw < 40:
            verb = self.clauses.verb()
            while _HUMAN not in verb.subjects:
                verb = self.clauses.verb()
            clause = self.clauses.clause(verb, tense=tense, negatable=False, brief=True, adverbials=False)
            return replace(clause, fronted=WHY if draw < 22 else WHEN)
        if draw < 60:
            verb = self._verb(Frame.MOTION, excluded="come")
            clause = self.clauses.clause(
                verb, complement=_NOWHERE, tense=tense, negatable=False, brief=True, adverbials=False
            )
            return replace(clause, fronted=WHERE_TO)
        if draw < 75:
            clause = self.clauses.clause(
                LIVE, complement=_NOWHERE, tense=tense, negatable=False, brief=True, adverbials=False
            )
            return replace(clause, fronted=WHERE)
        if draw < 90:
            classes = (NounClass.POSSESSION, NounClass.READABLE, NounClass.CLOTHING, NounClass.VEHICLE, NounClass.KIN)
            subject = self.phrases.noun_phrase(classes, Reference.DEFINITE)
            past = self.source.chance(30)
            return Clause(subject, BE, tense or (Tense.PAST if past else Tense.PRESENT), fronted=WHERE)
        verb = self.source.choose([entry for entry in VERBS if entry.allows_place and _HUMAN in entry.subjects])
        clause = self.clauses.clause(verb, tense=tense, negatable=False, brief=True, adverbials=False)
        return replace(clause, fronted=replace(WHERE, argument=Argument.NONE))

    def _verb(self, frame: Frame, excluded: str = "") -> Verb:
        return self.source.choose(
            [v for v in VERBS if v.frame is frame and _HUMAN in v.subjects and v.english.base != excluded]
        )

    def _subject_question(self) -> Clause:
        verb = self.clauses.verb()
        while _HUMAN not in verb.subjects:
            verb = self.clauses.verb()
        clause = self.clauses.clause(verb, subject=WHO, negatable=False)
        return _front_pronoun(replace(clause, fronted=None), WHO, Argument.SUBJECT)

    def _object_question(self) -> Clause:
        verb = self._verb(Frame.TRANSITIVE)
        while NounClass.ANIMAL in verb.objects:
            # Neither *who* nor *what* would be the obvious question.
            verb = self._verb(Frame.TRANSITIVE)
        pronoun = WHO if _HUMAN in verb.objects else WHAT
        clause = self.clauses.clause(verb, accusative=pronoun, negatable=False, brief=True, adverbials=False)
        return _front_pronoun(clause, pronoun, Argument.ACCUSATIVE)

    def _dative_question(self) -> Clause:
        verb = self._verb(self.source.choose((Frame.DATIVE, Frame.DITRANSITIVE)))
        clause = self.clauses.clause(verb, dative=WHO, negatable=False, brief=True, adverbials=False)
        clause = _front_pronoun(clause, WHO, Argument.DATIVE)
        if clause.fronted and verb.frame is Frame.DITRANSITIVE:
            clause = replace(clause, fronted=replace(clause.fronted, english="to whom"))
        return clause

    def _phrase_question(self) -> Clause:
        if self.source.chance(30):
            head = self.phrases.choose_noun(nouns_of(_HUMAN))
            subject = self._questioned(head.mass, NounPhrase(head, self._number()))
            verb = self.clauses.verb()
            while _HUMAN not in verb.subjects:
                verb = self.clauses.verb()
            clause = self.clauses.clause(verb, subject=subject, negatable=False, brief=True, adverbials=False)
            case, argument = Case.NOMINATIVE, Argument.SUBJECT
        else:
            verb = self._verb(Frame.TRANSITIVE)
            head = self.phrases.choose_noun(nouns_of(*verb.objects))
            subject = self._questioned(head.mass, NounPhrase(head, Number.SINGULAR if head.mass else self._number()))
            clause = self.clauses.clause(verb, accusative=subject, negatable=False, brief=True, adverbials=False)
            case, argument = Case.ACCUSATIVE, Argument.ACCUSATIVE
        return replace(clause, fronted=Fronted(subject.english(case), subject.german(case), argument))

    def _number(self) -> Number:
        return self.source.choose((Number.SINGULAR, Number.PLURAL))

    def _questioned(self, mass: bool, phrase: NounPhrase) -> NounPhrase:
        how_many = phrase.number is Number.PLURAL and not mass and self.source.chance(60)
        adjective = self.phrases.adjective_for(phrase.noun) if self.source.chance(35) else None
        return replace(phrase, determiner=HOW_MANY if how_many else WHICH, adjective=adjective)


class _EmptyComplement:
    """Stands for the place that is asked for."""

    def english(self) -> str:
        """Return nothing: the question word stands elsewhere."""
        return ""

    def german(self) -> str:
        """Return nothing: the question word stands elsewhere."""
        return ""


_NOWHERE = _EmptyComplement()


def _front_pronoun(clause: Clause, pronoun: InterrogativePronoun, argument: Argument) -> Clause:
    case = {
        Argument.SUBJECT: Case.NOMINATIVE,
        Argument.ACCUSATIVE: Case.ACCUSATIVE,
        Argument.DATIVE: Case.DATIVE,
    }[argument]
    return replace(clause, fronted=Fronted(pronoun.english(case), pronoun.german(case), argument))
