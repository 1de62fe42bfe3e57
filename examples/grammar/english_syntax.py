"""English word order: *do*-support, the places of adverbs and particles, and prepositions at the end."""

from __future__ import annotations

from clause import Clause
from lexicon import Tense
from nominals import join


def declarative(clause: Clause) -> str:
    """Return a statement or subordinate clause: subject before verb."""
    auxiliary, rest = _verb_group(clause, inverted=False)
    subject = "" if clause.moved == "subject" else clause.subject.english("nom")
    return join(clause.front.english, subject, auxiliary, rest, _after_verb(clause))


def interrogative(clause: Clause) -> str:
    """Return a question: the auxiliary before the subject, unless that is asked for."""
    if clause.moved == "subject":
        return declarative(clause)
    auxiliary, rest = _verb_group(clause, inverted=True)
    return join(clause.front.english, auxiliary, clause.subject.english("nom"), rest, _after_verb(clause))


def infinitive(clause: Clause) -> str:
    """Return an infinitive clause with *to* and without its subject."""
    return join("to", clause.verb.english.base, _after_verb(clause))


def _verb_group(clause: Clause, *, inverted: bool) -> tuple[str, str]:
    """Return the auxiliary, which a question puts before the subject, and what follows it."""
    modal, verb = clause.modal, clause.verb.english
    negation = "not" if clause.negated else ""
    frequency = clause.frequency.english
    if modal and modal.auxiliary:
        if modal.auxiliary == "can" and negation and not inverted:
            return "cannot", join(frequency, verb.base)
        return modal.auxiliary, join(negation, frequency, modal.rest, verb.base)
    head, rest, tense = verb, "", clause.tense
    if modal and modal.lexical:
        head, rest, tense = modal.lexical, f"to {verb.base}", modal.tense
    if head.base == "be":
        return _form_of_be(clause, tense), join(negation, frequency)
    if negation or inverted:
        do = "did" if tense == "past" else "does" if clause.is_third_singular else "do"
        return do, join(negation, frequency, head.base, rest)
    finite = head.past if tense == "past" else head.third if clause.is_third_singular else head.base
    return "", join(frequency, finite, rest)


def _form_of_be(clause: Clause, tense: Tense) -> str:
    present, past = ("is", "was") if clause.subject.number == "sg" else ("are", "were")
    if tense == "past":
        return past
    return "am" if present == "is" and clause.subject.person == 1 else present


def _after_verb(clause: Clause) -> str:
    complement = "" if clause.moved == "complement" else clause.complement.english
    return join(_objects(clause), complement, clause.adjunct.english, clause.time.english)


def _objects(clause: Clause) -> str:
    verb = clause.verb.english
    dative = clause.dative.english("acc") if clause.dative and clause.moved != "dative" else ""
    accusative = clause.accusative.english("acc") if clause.accusative and clause.moved != "accusative" else ""
    has_pronoun = clause.accusative is not None and clause.accusative.is_pronoun
    if clause.verb.frame == "dative":
        return join(verb.particle, verb.link, dative)
    if clause.verb.frame == "ditransitive":
        if dative and (has_pronoun or "to" in clause.verb.flags):
            return join(accusative, f"to {dative}")
        return join(dative, accusative)
    if has_pronoun:
        return join(verb.link, accusative, verb.particle)
    return join(verb.particle, verb.link, accusative)
