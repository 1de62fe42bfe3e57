"""Direct questions, and the clauses of indirect ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import english_syntax as en
import german_syntax as de
from clause import Clause, sentence
from declension import HOW_MANY, WHICH
from lexicon import BE, LIVE, NOTHING, VERBS, Number, Pair, Tense, Verb, nouns_of
from nominals import I_PRONOUN, WHAT, WHO, NounPhrase
from relative_clauses import RelativeClauseSampler

# English *where* is German *wo* for a place and *wohin* for a goal.
_WHERE, _WHERE_TO = Pair("where", "wo"), Pair("where", "wohin")
_WHEN, _WHY = Pair("when", "wann"), Pair("why", "warum")


class QuestionSampler(RelativeClauseSampler):
    """Draws questions."""

    def polar_question(self) -> Pair:
        """Return a yes/no question."""
        if self.chance(25):
            clause = replace(self.copular_clause(), negated=False)
        else:
            clause = self.clause(negatable=False)
        while clause.subject is I_PRONOUN and clause.modal is None:  # nobody asks what only they can know
            clause = self.clause(negatable=False)
        clause = replace(clause, front=NOTHING)
        return sentence(en.interrogative(clause), de.verb_first(clause), "?")

    def constituent_question(self) -> Pair:
        """Return a question that begins with a question word."""
        kinds: list[tuple[int, Callable[[], Clause]]] = [
            (3, self.adverbial_question),
            (2, self._subject_question),
            (2, self._object_question),
            (2, self._dative_question),
            (3, self._phrase_question),
        ]
        build = self.choose_weighted(kinds)
        clause = build()
        while clause.subject is I_PRONOUN:
            clause = build()
        return sentence(en.interrogative(clause), de.verb_second(clause), "?")

    def adverbial_question(self, tense: Tense | None = None) -> Clause:
        """Return a clause with *where*, *when* or *why* at its front."""
        draw = self.below(100)
        if draw < 40:
            return self._asked(self._verb_of_people(), tense=tense).with_front(_WHY if draw < 22 else _WHEN)
        if draw < 60:
            going = self.choose([entry for entry in _verbs("motion") if entry.english.base != "come"])
            return self._asked(going, tense=tense, complement=NOTHING).with_front(_WHERE_TO, "complement")
        if draw < 75:
            return self._asked(LIVE, tense=tense, complement=NOTHING).with_front(_WHERE, "complement")
        if draw < 90:
            subject = self.noun_phrase(("possession", "readable", "clothing", "vehicle", "kin"), "definite")
            past = self.chance(30)
            return Clause(subject, BE, tense or ("past" if past else "present")).with_front(_WHERE, "complement")
        staying = self.choose([entry for entry in VERBS if "place" in entry.flags and entry.has_person])
        return self._asked(staying, tense=tense).with_front(_WHERE)

    @property
    def _asked(self) -> Callable[..., Clause]:
        return partial(self.clause, negatable=False, brief=True)

    def _verb_of_people(self) -> Verb:
        return self.verb(suits=lambda entry: entry.has_person)

    def _subject_question(self) -> Clause:
        clause = self.clause(self._verb_of_people(), subject=WHO, negatable=False)
        return clause.with_pronoun_in_front(WHO, "subject")

    def _object_question(self) -> Clause:
        verb = self.choose(_verbs("transitive"))
        while "animal" in verb.objects:  # neither *who* nor *what* would be the obvious question
            verb = self.choose(_verbs("transitive"))
        pronoun = WHO if "human" in verb.objects else WHAT
        return self._asked(verb, accusative=pronoun).with_pronoun_in_front(pronoun, "accusative")

    def _dative_question(self) -> Clause:
        verb = self.choose(_verbs(self.choose(("dative", "ditransitive"))))
        clause = self._asked(verb, dative=WHO)
        return clause.with_front(Pair("to whom" if verb.frame == "ditransitive" else "whom", "wem"), "dative")

    def _phrase_question(self) -> Clause:
        if self.chance(30):
            phrase = self._questioned("human")
            return self._asked(self._verb_of_people(), subject=phrase).with_pronoun_in_front(phrase, "subject")
        verb = self.choose(_verbs("transitive"))
        phrase = self._questioned(*verb.objects)
        return self._asked(verb, accusative=phrase).with_pronoun_in_front(phrase, "accusative")

    def _questioned(self, *classes: str) -> NounPhrase:
        head = self.choose_noun(nouns_of(*classes))
        numbers: tuple[Number, Number] = ("sg", "pl")
        number = "sg" if head.belongs_to("mass") else self.choose(numbers)
        determiner = HOW_MANY if number == "pl" and self.chance(60) else WHICH
        return NounPhrase(head, number, determiner, self.adjective_for(head) if self.chance(35) else None)


def _verbs(frame: str) -> list[Verb]:
    """Return the verbs of a frame that people can be the subjects of."""
    return [entry for entry in VERBS if entry.frame == frame and entry.has_person]
