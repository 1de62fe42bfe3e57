"""English word order: *do*-support, adverb position, particles and stranded prepositions."""

from __future__ import annotations

from clause import Argument, Clause
from lexicon import Case, EnglishVerb, Frame, Number, Tense
from noun_phrase import join_words


def english_declarative(clause: Clause) -> str:
    """Linearise a statement or subordinate clause: subject before verb."""
    auxiliary, rest = _verb_group(clause, inverted=False)
    subject = "" if clause.moves(Argument.SUBJECT) else clause.subject.english(Case.NOMINATIVE)
    return join_words(_front(clause), subject, auxiliary, rest, _after_verb(clause))


def english_interrogative(clause: Clause) -> str:
    """Linearise a question: the auxiliary before the subject, unless the subject is questioned."""
    if clause.moves(Argument.SUBJECT):
        return english_declarative(clause)
    auxiliary, rest = _verb_group(clause, inverted=True)
    subject = clause.subject.english(Case.NOMINATIVE)
    return join_words(_front(clause), auxiliary, subject, rest, _after_verb(clause))


def english_infinitive(clause: Clause) -> str:
    """Linearise an infinitive clause with *to* and without its subject."""
    return join_words("to", clause.verb.english.base, _after_verb(clause))


def _front(clause: Clause) -> str:
    return clause.fronted.english if clause.fronted else ""


def _verb_group(clause: Clause, *, inverted: bool) -> tuple[str, str]:
    """Return the auxiliary, which a question puts before the subject, and what follows it."""
    verb = clause.verb.english
    negation = "not" if clause.negated else ""
    frequency = clause.frequency.english if clause.frequency else ""
    modal = clause.modal
    if modal and modal.auxiliary:
        if modal.auxiliary == "can" and negation and not inverted:
            return "cannot", join_words(frequency, verb.base)
        return modal.auxiliary, join_words(negation, frequency, modal.remainder, verb.base)
    if modal and modal.lexical:
        head, remainder, tense = modal.lexical, f"to {verb.base}", modal.tense
    else:
        head, remainder, tense = verb, "", clause.tense
    if head.base == "be":
        return _form_of_be(clause, tense), join_words(negation, frequency)
    if negation or inverted:
        return _form_of_do(clause, tense), join_words(negation, frequency, head.base, remainder)
    return "", join_words(frequency, _finite_form(clause, head, tense), remainder)


def _finite_form(clause: Clause, verb: EnglishVerb, tense: Tense) -> str:
    if tense is Tense.PAST:
        return verb.past
    return verb.third if clause.subject_is_third_singular else verb.base


def _form_of_do(clause: Clause, tense: Tense) -> str:
    if tense is Tense.PAST:
        return "did"
    return "does" if clause.subject_is_third_singular else "do"


def _form_of_be(clause: Clause, tense: Tense) -> str:
    singular = clause.subject.number is Number.SINGULAR
    if tense is Tense.PAST:
        return "was" if singular else "were"
    if not singular:
        return "are"
    return "am" if clause.subject.person == 1 else "is"


def _after_verb(clause: Clause) -> str:
    complement = clause.complement
    return join_words(
        _objects(clause),
        complement.english() if complement and not clause.moves(Argument.COMPLEMENT) else "",
        clause.adjunct.english() if clause.adjunct else "",
        clause.time.english if clause.time else "",
    )


def _objects(clause: Clause) -> str:
    verb = clause.verb.english
    dative = _in_place(clause, Argument.DATIVE)
    accusative = _in_place(clause, Argument.ACCUSATIVE)
    if clause.verb.frame is Frame.DATIVE:
        return join_words(verb.particle, verb.object_preposition, dative)
    if clause.verb.frame is Frame.DITRANSITIVE:
        if dative and (clause.verb.to_dative_only or (clause.accusative and clause.accusative.is_pronoun)):
            return join_words(accusative, f"to {dative}")
        return join_words(dative, accusative)
    if clause.accusative and clause.accusative.is_pronoun:
        return join_words(verb.object_preposition, accusative, verb.particle)
    return join_words(verb.particle, verb.object_preposition, accusative)


def _in_place(clause: Clause, argument: Argument) -> str:
    nominal = clause.dative if argument is Argument.DATIVE else clause.accusative
    if nominal is None or clause.moves(argument):
        return ""
    return nominal.english(Case.ACCUSATIVE)
