"""Types of lexical entries and the grammatical features they are inflected for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Gender(Enum):
    """Grammatical gender of a German noun."""

    MASCULINE = "masculine"
    FEMININE = "feminine"
    NEUTER = "neuter"


class Case(Enum):
    """German case; English pronouns distinguish only nominative and the rest."""

    NOMINATIVE = "nominative"
    ACCUSATIVE = "accusative"
    DATIVE = "dative"
    GENITIVE = "genitive"


class Number(Enum):
    """Grammatical number."""

    SINGULAR = "singular"
    PLURAL = "plural"


class Tense(Enum):
    """Tense of a clause.

    The English simple past is rendered by the German perfect, as in everyday German;
    the future is an auxiliary in both languages and is therefore listed with the modals.
    """

    PRESENT = "present"
    PAST = "past"


class NounClass(Enum):
    """Semantic class, used for the selectional restrictions of verbs and adjectives."""

    HUMAN = "human"
    KIN = "kin"
    ANIMAL = "animal"
    FOOD = "food"
    COOKED = "cooked"
    BAKED = "baked"
    FODDER = "fodder"
    DRINK = "drink"
    READABLE = "readable"
    WRITABLE = "writable"
    HANGING = "hanging"
    CLOTHING = "clothing"
    FURNITURE = "furniture"
    CONTAINER = "container"
    UTENSIL = "utensil"
    POSSESSION = "possession"
    DEVICE = "device"
    VEHICLE = "vehicle"
    BUILDING = "building"
    ROOM = "room"
    LANDSCAPE = "landscape"
    TALL = "tall"
    PART = "part of a building"
    OWNER = "owner"
    OPENABLE = "openable"
    EVENT = "event"
    ABSTRACT = "abstract"
    UPRIGHT = "stands where it is put"
    FLAT = "lies where it is put"
    UNIQUE = "kinship of which there is one"
    UNPOSSESSED = "person or place that is nobody's"
    YOUNG = "young person"


class Frame(Enum):
    """What a verb combines with, apart from its subject."""

    INTRANSITIVE = "no object"
    TRANSITIVE = "accusative object"
    DATIVE = "dative object"
    DITRANSITIVE = "dative and accusative object"
    PREPOSITIONAL = "prepositional object"
    MOTION = "directional phrase"
    PLACEMENT = "accusative object and directional phrase"
    POSITION = "locative phrase"
    COPULA = "predicate"
    CLAUSAL = "object clause"
    CONTROL = "infinitive clause"


@dataclass(frozen=True)
class Noun:
    """A noun with the forms from which all others follow by rule."""

    english: str
    english_plural: str
    german: str
    german_plural: str
    gender: Gender
    genitive: str
    oblique: str
    classes: tuple[NounClass, ...]
    mass: bool = False
    natural_gender: Gender | None = None
    feminine_form: str = ""

    def english_form(self, number: Number) -> str:
        """Return the English form for ``number``."""
        return self.english if number is Number.SINGULAR else self.english_plural

    def german_form(self, case: Case, number: Number) -> str:
        """Return the German form for ``case`` and ``number``."""
        if number is Number.PLURAL:
            if case is Case.DATIVE and not self.german_plural.endswith(("n", "s")):
                return self.german_plural + "n"
            return self.german_plural
        if case is Case.GENITIVE:
            return self.genitive
        return self.german if case is Case.NOMINATIVE else self.oblique

    def belongs_to(self, classes: Sequence[NounClass]) -> bool:
        """Tell whether the noun is in at least one of ``classes``."""
        return any(noun_class in self.classes for noun_class in classes)


@dataclass(frozen=True)
class Adjective:
    """An adjective; ``stem`` is what the German attributive endings are added to.

    Adjectives of the same ``dimension``, such as *big* and *small*, are never combined.
    """

    english: str
    german: str
    stem: str
    classes: tuple[NounClass, ...]
    english_comparative: str = ""
    german_comparative: str = ""
    dimension: str = ""


@dataclass(frozen=True)
class Preposition:
    """A preposition and the case its German counterpart governs."""

    english: str
    german: str
    case: Case


@dataclass(frozen=True)
class EnglishVerb:
    """Principal parts of an English verb; only *be* distinguishes more forms."""

    base: str
    third: str
    past: str
    particle: str = ""
    object_preposition: str = ""


@dataclass(frozen=True)
class GermanVerb:
    """Forms of a German verb; finite forms and ``infinitive`` exclude a separable prefix."""

    infinitive: str
    first_singular: str
    third_singular: str
    plural: str
    participle: str
    auxiliary_sein: bool = False
    prefix: str = ""
    reflexive: bool = False
    preterite_singular: str = ""
    preterite_plural: str = ""

    @property
    def full_infinitive(self) -> str:
        """The infinitive with the separable prefix, if there is one."""
        return self.prefix + self.infinitive

    @property
    def zu_infinitive(self) -> str:
        """The infinitive with *zu*, which goes between separable prefix and stem."""
        return f"{self.prefix}zu{self.infinitive}" if self.prefix else f"zu {self.infinitive}"


@dataclass(frozen=True)
class Verb:
    """A pair of corresponding verbs with their frame and selectional restrictions."""

    english: EnglishVerb
    german: GermanVerb
    frame: Frame
    subjects: tuple[NounClass, ...]
    objects: tuple[NounClass, ...] = ()
    preposition: Preposition | None = None
    to_dative_only: bool = False
    allows_place: bool = False
    durative: bool = False
    stative: bool = False
    indefinite_object: bool = False
    involuntary: bool = False


@dataclass(frozen=True)
class Modal:
    """A modal or the future auxiliary.

    An English counterpart is either an ``auxiliary`` (with an optional ``remainder``, as in
    *would like to*) or a ``lexical`` verb that needs *do*-support (*want to*).
    """

    auxiliary: str
    remainder: str
    lexical: EnglishVerb | None
    german_first: str
    german_third: str
    german_plural: str
    tense: Tense = Tense.PRESENT
    negatable: bool = True


@dataclass(frozen=True)
class Adverbial:
    """An adverb or a fixed adverbial phrase in both languages."""

    english: str
    german: str
