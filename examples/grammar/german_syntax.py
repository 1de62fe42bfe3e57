"""German word order: the finite verb first, second or last, and the field in the middle."""

from __future__ import annotations

from dataclasses import replace

from clause import Clause
from declension import NEGATIVE
from lexicon import Case
from nominals import Nominal, NounPhrase, Pronoun, join


def verb_second(clause: Clause) -> str:
    """Return a main clause; if something else is at the front, the subject follows the verb."""
    finite, final = _verb_group(clause)
    if clause.front and clause.moved != "subject":
        return join(clause.front.german, finite, _subject(clause), _middle_field(clause), final)
    first = clause.front.german or clause.subject.german("nom")
    return join(first, finite, _reflexive(clause), _middle_field(clause), final)


def verb_first(clause: Clause) -> str:
    """Return a yes/no question, or a main clause after a clause that is its first part."""
    finite, final = _verb_group(clause)
    return join(finite, _subject(clause), _middle_field(clause), final)


def verb_final(clause: Clause) -> str:
    """Return a subordinate clause; a separable prefix is joined to its verb at the end."""
    finite, final = _verb_group(clause)
    subject = _reflexive(clause) if clause.moved == "subject" else _subject(clause)
    end = final + finite if final == clause.verb.german.prefix else join(final, finite)
    return join(clause.front.german, subject, _middle_field(clause), end)


def infinitive(clause: Clause) -> str:
    """Return an infinitive clause with *zu* and without its subject."""
    return join(_reflexive(clause), _middle_field(clause), clause.verb.german.zu_infinitive)


def _verb_group(clause: Clause) -> tuple[str, str]:
    """Return the finite verb and the words at the end of a main clause."""
    verb, modal = clause.verb.german, clause.modal
    if modal:
        return _agreeing(clause.subject, modal.first, modal.third, modal.plural), verb.full_infinitive
    if clause.tense == "present":
        return _agreeing(clause.subject, verb.first, verb.third, verb.plural), verb.prefix
    if verb.preterite:
        plural = verb.preterite + ("n" if verb.preterite.endswith("e") else "en")
        return _agreeing(clause.subject, verb.preterite, verb.preterite, plural), ""
    forms = ("bin", "ist", "sind") if verb.auxiliary == "sein" else ("habe", "hat", "haben")
    return _agreeing(clause.subject, *forms), verb.participle


def _agreeing(subject: Nominal, first: str, third: str, plural: str) -> str:
    # First and third person plural are always alike, and there is no second person.
    if subject.number == "pl":
        return plural
    return first if subject.person == 1 else third


def _middle_field(clause: Clause) -> str:
    """Return what stands between the finite verb, or the subject, and the end of the clause.

    Pronouns come first, then adverbials of time, then noun phrases with the dative before the accusative, then the
    negation and what is closest to the verb.
    """
    accusative = None if clause.moved == "accusative" else clause.accusative
    dative = None if clause.moved == "dative" else clause.dative
    negation = "nicht" if clause.negated else ""
    if clause.negated and isinstance(accusative, NounPhrase) and accusative.is_indefinite:
        accusative, negation = replace(accusative, determiner=NEGATIVE), ""
    return join(
        _object(accusative, "acc", pronoun=True),
        _object(dative, "dat", pronoun=True),
        clause.time.german,
        _noun_objects(clause, dative, accusative),
        negation,
        clause.adjunct.german,
        "" if clause.moved == "complement" else clause.complement.german,
    )


def _noun_objects(clause: Clause, dative: Nominal | None, accusative: Nominal | None) -> str:
    """Return the objects that are no pronouns, and the adverb of frequency: after the first that is definite."""
    words = [_object(dative, "dat", pronoun=False), _object(accusative, "acc", pronoun=False)]
    first = dative or accusative
    position = 0
    if first and not first.is_pronoun and (not isinstance(first, NounPhrase) or first.is_definite):
        position = 1 if dative else 2
    words.insert(position, clause.frequency.german)
    return join(*words)


def _object(nominal: Nominal | None, case: Case, *, pronoun: bool) -> str:
    return nominal.german(case) if nominal and nominal.is_pronoun is pronoun else ""


def _subject(clause: Clause) -> str:
    """Return a subject that is not at the front; the reflexive pronoun follows a pronoun and precedes the others."""
    words = clause.subject.german("nom"), _reflexive(clause)
    return join(*(words if clause.subject.is_pronoun else reversed(words)))


def _reflexive(clause: Clause) -> str:
    if not clause.verb.german.reflexive:
        return ""
    first_person = isinstance(clause.subject, Pronoun) and clause.subject.person == 1
    return clause.subject.german("acc") if first_person else "sich"
