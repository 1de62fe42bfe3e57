"""The grammar as a whole: the kinds of sentences, how frequent each is, and the simple ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from clause import Clause, sentence
from complex_sentences import ComplexSentenceSampler
from declension import ALL, EVERY, MANY, NEGATIVE, SOME
from lexicon import NOUNS, Pair, places
from nominals import NounPhrase
from relative_clauses import statement

MINIMUM_WORDS = 3
MAXIMUM_WORDS = 16
_SIGHTS = ("school", "church", "hospital", "museum", "hotel", "restaurant", "castle", "library", "factory", "tower")


class Grammar(ComplexSentenceSampler):
    """Draws sentence pairs of all kinds."""

    def sentence_kinds(self) -> list[tuple[int, Callable[[], Pair]]]:
        """Return how to make each kind of sentence, and how frequent it is relative to the others."""
        return [
            (36, self.statement),
            (9, self.copular_statement),
            (4, self.existential_statement),
            (14, self.relative_sentence),
            (11, self.adverbial_clause),
            (8, self.object_clause),
            (6, self.infinitive_clause),
            (3, self.coordination),
            (4, self.polar_question),
            (6, self.constituent_question),
        ]

    def sentence(self) -> Pair:
        """Return a sentence pair of moderate length."""
        build = self.choose_weighted(self.sentence_kinds())
        while True:
            self.start_sentence()
            pair = build()
            lengths = [len(text.split()) for text in (pair.english, pair.german)]
            if min(lengths) >= MINIMUM_WORDS and max(lengths) <= MAXIMUM_WORDS:
                return pair

    def statement(self) -> Pair:
        """Return a main clause with a full verb."""
        return statement(self._with_no(self.clause()))

    def copular_statement(self) -> Pair:
        """Return a main clause with *be*."""
        return statement(self.copular_clause())

    def _with_no(self, clause: Clause) -> Clause:
        """Turn, now and then, an indefinite subject or object into *no ...*."""
        if clause.negated or clause.frequency or clause.modal or clause.time or clause.front or not self.chance(15):
            return clause
        subject, accusative = clause.subject, clause.accusative
        if isinstance(subject, NounPhrase) and subject.is_indefinite:
            return replace(clause, subject=replace(subject, determiner=NEGATIVE))
        # After a quantified subject it would be open what *no* refers to.
        quantified = isinstance(subject, NounPhrase) and subject.determiner in (EVERY, ALL, MANY, SOME)
        if isinstance(accusative, NounPhrase) and accusative.is_indefinite and not quantified:
            return replace(clause, accusative=replace(accusative, determiner=NEGATIVE))
        return clause

    def existential_statement(self) -> Pair:
        """Return *there is ...* with a place, which comes first or last; German *es gibt* has an accusative."""
        kind = ("animal", "sight", "thing", "thing")[self.below(4)]
        if kind == "sight":
            phrase = self.phrase_with(NOUNS[self.choose(_SIGHTS)], "indefinite")
        else:
            classes = ("animal",) if kind == "animal" else ("furniture", "device", "container", "utensil")
            phrase = self.noun_phrase(classes, "indefinite")
        place = self.place(places(kind), definite=True)
        english, german = phrase.english("acc"), phrase.german("acc")
        past = self.chance(30)
        copula = ("was" if past else "is") if phrase.number == "sg" else ("were" if past else "are")
        gibt = "gab" if past else "gibt"
        if self.chance(40):
            return sentence(f"{place.english} there {copula} {english}", f"{place.german} {gibt} es {german}")
        return sentence(f"there {copula} {english} {place.english}", f"es {gibt} {german} {place.german}")
