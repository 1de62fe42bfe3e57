"""The grammar as a whole: the sentence types, how frequent each is, and the simple ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from adverbials import PlaceRelation
from clause import Clause, PrepositionalPhrase
from clause_sampling import ClauseSampler
from complex_sentences import ComplexSentenceSampler
from declension import ALL, DEMONSTRATIVE, EVERY, MANY, NEGATIVE, POSSESSIVES, SOME
from english_syntax import english_declarative
from german_syntax import german_verb_second
from lexicon import Case, Frame, NounClass, Number, Preposition, Tense
from noun_phrase import NounPhrase, join_words
from nouns import noun
from phrase_sampling import PhraseSampler, Reference
from questions import QuestionSampler
from random_source import RandomSource
from relative_clause import RelativeClauseSampler
from sentence import SentencePair, sentence_pair
from verbs import VERBS

MINIMUM_WORDS = 3
MAXIMUM_WORDS = 16

_INDOORS = ("kitchen", "room", "cellar", "office", "hotel room", "school", "library")
_OUTDOORS = ("garden", "park", "forest", "city park")
_FURNISHINGS = (NounClass.FURNITURE, NounClass.DEVICE, NounClass.CONTAINER, NounClass.UTENSIL)
_SETTLEMENTS = ("city", "village")
_SIGHTS = ("school", "church", "hospital", "museum", "hotel", "restaurant", "castle", "library", "factory", "tower")
# What is already identified is not identified again by a relative clause.
_UNSUITABLE_FOR_RELATIVE = (*POSSESSIVES, DEMONSTRATIVE)
_RELATIVE_ANTECEDENTS = (
    NounClass.HUMAN, NounClass.HUMAN, NounClass.ANIMAL, NounClass.POSSESSION, NounClass.READABLE, NounClass.VEHICLE,
    NounClass.CLOTHING, NounClass.BUILDING, NounClass.FURNITURE, NounClass.ROOM,
)  # fmt: skip


@dataclass(frozen=True)
class SentenceType:
    """A way to build a sentence, and how often it is used relative to the others."""

    name: str
    weight: int
    build: Callable[[], SentencePair]


class Grammar:
    """Draws sentence pairs of all types from one random source."""

    def __init__(self, source: RandomSource) -> None:
        self.source = source
        self.phrases = PhraseSampler(source)
        self.clauses = ClauseSampler(self.phrases)
        self.relative_clauses = RelativeClauseSampler(self.clauses)
        self.questions = QuestionSampler(self.clauses)
        self.complex_sentences = ComplexSentenceSampler(self.clauses, self.questions)
        self.sentence_types = (
            SentenceType("statement", 36, self.statement),
            SentenceType("copular statement", 9, self.copular_statement),
            SentenceType("existential statement", 4, self.existential_statement),
            SentenceType("relative clause", 14, self.relative_sentence),
            SentenceType("adverbial clause", 11, self.complex_sentences.adverbial_clause),
            SentenceType("object clause", 8, self.complex_sentences.object_clause),
            SentenceType("infinitive clause", 6, self.complex_sentences.infinitive_clause),
            SentenceType("coordination", 3, self.complex_sentences.coordination),
            SentenceType("yes/no question", 4, self.questions.polar_question),
            SentenceType("constituent question", 6, self.questions.constituent_question),
        )

    def sentence(self) -> SentencePair:
        """Return a sentence pair of moderate length."""
        build = self.source.choose_weighted([(kind.weight, kind.build) for kind in self.sentence_types])
        while True:
            self.phrases.start_sentence()
            pair = build()
            longest = max(len(pair.english.split()), len(pair.german.split()))
            shortest = min(len(pair.english.split()), len(pair.german.split()))
            if shortest >= MINIMUM_WORDS and longest <= MAXIMUM_WORDS:
                return pair

    def statement(self) -> SentencePair:
        """Return a main clause with a full verb."""
        return _statement(self._with_no(self.clauses.clause()))

    def _with_no(self, clause: Clause) -> Clause:
        """Sometimes turn an indefinite subject or object into *no ...*."""
        if clause.negated or clause.frequency or clause.modal or clause.time or clause.fronted:
            return clause
        subject, accusative = clause.subject, clause.accusative
        if not self.source.chance(15):
            return clause
        if isinstance(subject, NounPhrase):
            # Quantified subjects would leave the scope of *no* open.
            if subject.is_indefinite:
                return replace(clause, subject=replace(subject, determiner=NEGATIVE))
            if subject.determiner in (EVERY, ALL, MANY, SOME):
                return clause
        if isinstance(accusative, NounPhrase) and accusative.is_indefinite:
            return replace(clause, accusative=replace(accusative, determiner=NEGATIVE))
        return clause

    def copular_statement(self) -> SentencePair:
        """Return a main clause with *be*."""
        return _statement(self.clauses.copular_clause())

    def relative_sentence(self) -> SentencePair:
        """Return a main clause whose subject or object has a relative clause."""
        classes = (self.source.choose(_RELATIVE_ANTECEDENTS),)
        antecedent = self._antecedent(classes)
        if self.source.chance(45):
            sentence = self.clauses.copular_clause(subject=antecedent, brief=True)
            return _statement(replace(sentence, subject=self.relative_clauses.attach(antecedent)))
        subjects = [v for v in VERBS if antecedent.belongs_to(*v.subjects) and v.frame is not Frame.POSITION]
        if subjects and self.source.chance(40):
            verb = self.source.choose(subjects)
            sentence = self.clauses.clause(verb, subject=antecedent, negatable=False, brief=True, adverbials=False)
            return _statement(replace(sentence, subject=self.relative_clauses.attach(antecedent)))
        # After an object the relative clause must not be cut off from the end of the sentence.
        objects = [
            v for v in VERBS
            if v.frame is Frame.TRANSITIVE and antecedent.belongs_to(*v.objects) and not v.german.prefix
            and not v.indefinite_object
        ]  # fmt: skip
        sentence = self.clauses.clause(
            self.source.choose(objects), accusative=antecedent, tense=Tense.PRESENT, modals=False,
            negatable=False, brief=True, adverbials=False,
        )  # fmt: skip
        if sentence.modal:
            return self.relative_sentence()
        return _statement(replace(sentence, accusative=self.relative_clauses.attach(antecedent)))

    def _antecedent(self, classes: tuple[NounClass, ...]) -> NounPhrase:
        phrase = self.phrases.noun_phrase(classes, brief=True)
        while phrase.determiner in _UNSUITABLE_FOR_RELATIVE or phrase.possessor is not None:
            phrase = self.phrases.noun_phrase(classes, brief=True)
        return phrase

    def existential_statement(self) -> SentencePair:
        """Return *there is ...* with a place, which comes first or last."""
        draw = self.source.below(4)
        if draw == 0:
            phrase = self.phrases.noun_phrase((NounClass.ANIMAL,), Reference.INDEFINITE)
            relation = _in(_OUTDOORS)
        elif draw == 1:
            phrase = self.phrases.phrase_with(noun(self.source.choose(_SIGHTS)), Reference.INDEFINITE)
            relation = _in(_SETTLEMENTS)
        else:
            phrase = self.phrases.noun_phrase(_FURNISHINGS, Reference.INDEFINITE)
            relation = _in(_INDOORS)
        return _existential(phrase, self.phrases.place((relation,), definite=True), self.source)


def _statement(clause: Clause) -> SentencePair:
    return sentence_pair(english_declarative(clause), german_verb_second(clause))


def _in(nouns: tuple[str, ...]) -> PlaceRelation:
    return PlaceRelation(Preposition("in", "in", Case.DATIVE), tuple(noun(english) for english in nouns))


def _existential(phrase: NounPhrase, place: PrepositionalPhrase, source: RandomSource) -> SentencePair:
    """Build the sentence; German *es gibt* takes an accusative and does not agree with it."""
    past = source.chance(30)
    singular = phrase.number is Number.SINGULAR
    copula = {(False, True): "is", (False, False): "are", (True, True): "was", (True, False): "were"}[past, singular]
    verb = "gab" if past else "gibt"
    english, german = phrase.english(Case.ACCUSATIVE), phrase.german(Case.ACCUSATIVE)
    if source.chance(40):
        return sentence_pair(
            join_words(place.english(), "there", copula, english), join_words(place.german(), verb, "es", german)
        )
    return sentence_pair(
        join_words("there", copula, english, place.english()), join_words("es", verb, german, place.german())
    )
