"""German word order: the finite verb first, second or last, and the field in the middle."""

from __future__ import annotations

from dataclasses import replace

from clause import Argument, Clause
from declension import NEGATIVE
from lexicon import Case, Number, Tense
from noun_phrase import Nominal, NounPhrase, join_words
from pronouns import PersonalPronoun


def german_verb_second(clause: Clause) -> str:
    """Linearise a main clause; if something else is fronted, the subject follows the verb."""
    finite, final = _verb_group(clause)
    if clause.fronted is None or clause.moves(Argument.SUBJECT):
        first = clause.fronted.german if clause.fronted else clause.subject.german(Case.NOMINATIVE)
        return join_words(first, finite, _reflexive(clause), _middle_field(clause), final)
    return join_words(clause.fronted.german, finite, _subject_in_middle(clause), _middle_field(clause), final)


def german_verb_first(clause: Clause) -> str:
    """Linearise a yes/no question, or a main clause whose first position is taken outside it."""
    finite, final = _verb_group(clause)
    return join_words(finite, _subject_in_middle(clause), _middle_field(clause), final)


def german_verb_final(clause: Clause) -> str:
    """Linearise a subordinate clause; a separable prefix rejoins its verb at the end."""
    finite, final = _verb_group(clause)
    front = clause.fronted.german if clause.fronted else ""
    subject = _reflexive(clause) if clause.moves(Argument.SUBJECT) else _subject_in_middle(clause)
    if final and final == clause.verb.german.prefix:
        return join_words(front, subject, _middle_field(clause), final + finite)
    return join_words(front, subject, _middle_field(clause), final, finite)


def german_infinitive(clause: Clause) -> str:
    """Linearise an infinitive clause with *zu* and without its subject."""
    return join_words(_reflexive(clause), _middle_field(clause), clause.verb.german.zu_infinitive)


def _verb_group(clause: Clause) -> tuple[str, str]:
    """Return the finite verb and the words at the end of a main clause."""
    verb = clause.verb.german
    modal = clause.modal
    if modal:
        finite = _agreeing(clause.subject, modal.german_first, modal.german_third, modal.german_plural)
        return finite, verb.full_infinitive
    if clause.tense is Tense.PRESENT:
        return _agreeing(clause.subject, verb.first_singular, verb.third_singular, verb.plural), verb.prefix
    if verb.preterite_singular:
        return _agreeing(clause.subject, verb.preterite_singular, verb.preterite_singular, verb.preterite_plural), ""
    if verb.auxiliary_sein:
        return _agreeing(clause.subject, "bin", "ist", "sind"), verb.participle
    return _agreeing(clause.subject, "habe", "hat", "haben"), verb.participle


def _agreeing(subject: Nominal, first_singular: str, third_singular: str, plural: str) -> str:
    # First and third person plural are always alike, and there is no second person.
    if subject.number is Number.PLURAL:
        return plural
    return first_singular if subject.person == 1 else third_singular


def _middle_field(clause: Clause) -> str:
    """Return what stands between finite verb (or subject) and the end of the clause.

    Pronouns come first, then adverbials of time, then noun phrases with the dative before the
    accusative, then the negation and whatever is closest to the verb. Adverbs of frequency follow
    the first object if that is definite, and else precede the objects.
    """
    accusative = None if clause.moves(Argument.ACCUSATIVE) else clause.accusative
    dative = None if clause.moves(Argument.DATIVE) else clause.dative
    complement = None if clause.moves(Argument.COMPLEMENT) else clause.complement
    negated_object = _negated_object(accusative) if clause.negated else None
    if negated_object is not None:
        accusative = negated_object
    return join_words(
        _object(accusative, Case.ACCUSATIVE, pronoun=True),
        _object(dative, Case.DATIVE, pronoun=True),
        clause.time.german if clause.time else "",
        _noun_objects(clause, dative, accusative),
        "nicht" if clause.negated and negated_object is None else "",
        clause.adjunct.german() if clause.adjunct else "",
        complement.german() if complement else "",
    )


def _negated_object(nominal: Nominal | None) -> NounPhrase | None:
    """Return an indefinite object with *kein*, which takes the place of *nicht*."""
    if isinstance(nominal, NounPhrase) and nominal.is_indefinite:
        return replace(nominal, determiner=NEGATIVE)
    return None


def _subject_in_middle(clause: Clause) -> str:
    """Return a subject that is not at the front, with the reflexive pronoun before or after it."""
    subject = clause.subject.german(Case.NOMINATIVE)
    if clause.subject.is_pronoun:
        return join_words(subject, _reflexive(clause))
    return join_words(_reflexive(clause), subject)


def _reflexive(clause: Clause) -> str:
    if not clause.verb.german.reflexive:
        return ""
    return clause.subject.german_reflexive if isinstance(clause.subject, PersonalPronoun) else "sich"


def _noun_objects(clause: Clause, dative: Nominal | None, accusative: Nominal | None) -> str:
    """Return the objects that are not pronouns, and the adverb of frequency among them."""
    words = [
        _object(dative, Case.DATIVE, pronoun=False),
        _object(accusative, Case.ACCUSATIVE, pronoun=False),
    ]
    # With two objects the adverb stands between them at the latest.
    first = dative or accusative
    position = 0
    if first and not first.is_pronoun and _is_definite(first):
        position = 1 if dative else 2
    words.insert(position, clause.frequency.german if clause.frequency else "")
    return join_words(*words)


def _is_definite(nominal: Nominal) -> bool:
    return nominal.is_definite if isinstance(nominal, NounPhrase) else True


def _object(nominal: Nominal | None, case: Case, *, pronoun: bool) -> str:
    if nominal is None or nominal.is_pronoun is not pronoun:
        return ""
    return nominal.german(case)
