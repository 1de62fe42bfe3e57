"""The nouns: simple nouns by semantic field, compounds, and proper names.

German genitives and plurals are spelled out because they cannot be predicted from the noun.
"""

from __future__ import annotations

from lexicon import Gender, Noun
from lexicon import NounClass as C

_ENGLISH_SIBILANTS = ("s", "x", "ch", "sh")


def _english_plural(singular: str) -> str:
    if singular.endswith(_ENGLISH_SIBILANTS):
        return singular + "es"
    if singular.endswith("y") and singular[-2] not in "aeiou":
        return singular[:-1] + "ies"
    return singular + "s"


def _strong(
    gender: Gender, english: str, forms: str, classes: tuple[C, ...], plural: str = "", feminine: str = "",
    natural_gender: Gender | None = None,
) -> Noun:  # fmt: skip
    """Build a noun from ``forms``: nominative, plural and (not for feminines) genitive."""
    parts = forms.split()
    german, german_plural = parts[0], parts[1]
    genitive = german if gender is Gender.FEMININE else parts[2]
    return Noun(
        english, plural or _english_plural(english), german, german_plural, gender, genitive, german, classes,
        feminine_form=feminine, natural_gender=natural_gender,
    )  # fmt: skip


def _m(english: str, forms: str, *classes: C, plural: str = "", feminine: str = "") -> Noun:
    return _strong(Gender.MASCULINE, english, forms, classes, plural, feminine)


def _f(english: str, forms: str, *classes: C, plural: str = "") -> Noun:
    return _strong(Gender.FEMININE, english, forms, classes, plural)


def _n(english: str, forms: str, *classes: C, plural: str = "") -> Noun:
    return _strong(Gender.NEUTER, english, forms, classes, plural)


def _weak(english: str, forms: str, *classes: C, plural: str = "", feminine: str = "", male: bool = False) -> Noun:
    """Build a masculine noun of the n-declension: every form but the nominative is the plural's."""
    german, other = forms.split()
    return Noun(
        english, plural or _english_plural(english), german, other, Gender.MASCULINE, other, other, classes,
        feminine_form=feminine, natural_gender=Gender.MASCULINE if male else None,
    )  # fmt: skip


def _male(english: str, forms: str, *classes: C, plural: str = "") -> Noun:
    return _strong(Gender.MASCULINE, english, forms, classes, plural, natural_gender=Gender.MASCULINE)


def _female(english: str, forms: str, *classes: C, plural: str = "") -> Noun:
    return _strong(Gender.FEMININE, english, forms, classes, plural, natural_gender=Gender.FEMININE)


def _mass(gender: Gender, english: str, german: str, genitive: str, *classes: C) -> Noun:
    return Noun(english, english, german, german, gender, genitive, german, classes, mass=True)


_PEOPLE = (
    _male("man", "Mann Männer Mannes", C.HUMAN, C.UNPOSSESSED, plural="men"),
    _female("woman", "Frau Frauen", C.HUMAN, C.UNPOSSESSED, plural="women"),
    _n("child", "Kind Kinder Kindes", C.HUMAN, C.YOUNG, plural="children"),
    _weak("boy", "Junge Jungen", C.HUMAN, C.YOUNG, male=True),
    _n("girl", "Mädchen Mädchen Mädchens", C.HUMAN, C.YOUNG),
    _male("father", "Vater Väter Vaters", C.HUMAN, C.KIN, C.UNIQUE),
    _female("mother", "Mutter Mütter", C.HUMAN, C.KIN, C.UNIQUE),
    _male("brother", "Bruder Brüder Bruders", C.HUMAN, C.KIN),
    _female("sister", "Schwester Schwestern", C.HUMAN, C.KIN),
    _male("son", "Sohn Söhne Sohnes", C.HUMAN, C.KIN),
    _female("daughter", "Tochter Töchter", C.HUMAN, C.KIN),
    _male("uncle", "Onkel Onkel Onkels", C.HUMAN, C.KIN),
    _female("aunt", "Tante Tanten", C.HUMAN, C.KIN),
    _male("grandfather", "Großvater Großväter Großvaters", C.HUMAN, C.KIN, C.UNIQUE),
    _female("grandmother", "Großmutter Großmütter", C.HUMAN, C.KIN, C.UNIQUE),
    _weak("nephew", "Neffe Neffen", C.HUMAN, C.KIN, male=True),
    _female("niece", "Nichte Nichten", C.HUMAN, C.KIN),
    _m("owner", "Besitzer Besitzer Besitzers", C.OWNER),
    _m("friend", "Freund Freunde Freundes", C.HUMAN),
    _weak("neighbour", "Nachbar Nachbarn", C.HUMAN),
    _weak("colleague", "Kollege Kollegen", C.HUMAN),
    _weak("customer", "Kunde Kunden", C.HUMAN),
    _weak("tourist", "Tourist Touristen", C.HUMAN, C.UNPOSSESSED),
    _m("guest", "Gast Gäste Gastes", C.HUMAN),
    _m("king", "König Könige Königs", C.HUMAN, C.UNPOSSESSED),
    _f("queen", "Königin Königinnen", C.HUMAN, C.UNPOSSESSED),
    _weak("student", "Student Studenten", C.HUMAN, feminine="Studentin"),
    _weak("policeman", "Polizist Polizisten", C.HUMAN, plural="policemen"),
    _weak("farmer", "Bauer Bauern", C.HUMAN, feminine="Bäuerin"),
    _m("teacher", "Lehrer Lehrer Lehrers", C.HUMAN, feminine="Lehrerin"),
    _m("pupil", "Schüler Schüler Schülers", C.HUMAN, feminine="Schülerin"),
    _m("doctor", "Arzt Ärzte Arztes", C.HUMAN, feminine="Ärztin"),
    _m("baker", "Bäcker Bäcker Bäckers", C.HUMAN, feminine="Bäckerin"),
    _m("gardener", "Gärtner Gärtner Gärtners", C.HUMAN, feminine="Gärtnerin"),
    _m("painter", "Maler Maler Malers", C.HUMAN, feminine="Malerin"),
    _m("singer", "Sänger Sänger Sängers", C.HUMAN, feminine="Sängerin"),
    _m("judge", "Richter Richter Richters", C.HUMAN, feminine="Richterin"),
    _m("engineer", "Ingenieur Ingenieure Ingenieurs", C.HUMAN, feminine="Ingenieurin"),
    _m("lawyer", "Anwalt Anwälte Anwalts", C.HUMAN, feminine="Anwältin"),
)

_ANIMALS = (
    _m("dog", "Hund Hunde Hundes", C.ANIMAL),
    _f("cat", "Katze Katzen", C.ANIMAL),
    _n("horse", "Pferd Pferde Pferdes", C.ANIMAL),
    _f("cow", "Kuh Kühe", C.ANIMAL),
    _m("bird", "Vogel Vögel Vogels", C.ANIMAL),
    _f("mouse", "Maus Mäuse", C.ANIMAL, plural="mice"),
    _n("pig", "Schwein Schweine Schweines", C.ANIMAL),
    _f("goat", "Ziege Ziegen", C.ANIMAL),
    _weak("bear", "Bär Bären", C.ANIMAL),
    _weak("monkey", "Affe Affen", C.ANIMAL),
)

_FOOD = (
    _m("apple", "Apfel Äpfel Apfels", C.FOOD, C.FODDER),
    _n("egg", "Ei Eier Eis", C.FOOD, C.COOKED),
    _m("cake", "Kuchen Kuchen Kuchens", C.FOOD, C.BAKED),
    _f("potato", "Kartoffel Kartoffeln", C.FOOD, C.COOKED, C.FODDER, plural="potatoes"),
    _f("carrot", "Karotte Karotten", C.FOOD, C.COOKED, C.FODDER),
    _f("tomato", "Tomate Tomaten", C.FOOD, plural="tomatoes"),
    _f("pear", "Birne Birnen", C.FOOD, C.FODDER),
    _f("cherry", "Kirsche Kirschen", C.FOOD),
    _n("sandwich", "Sandwich Sandwiches Sandwichs", C.FOOD),
    _mass(Gender.NEUTER, "bread", "Brot", "Brotes", C.FOOD, C.BAKED, C.FODDER),
    _mass(Gender.MASCULINE, "cheese", "Käse", "Käses", C.FOOD),
    _mass(Gender.FEMININE, "soup", "Suppe", "Suppe", C.FOOD, C.COOKED),
    _mass(Gender.NEUTER, "meat", "Fleisch", "Fleisches", C.FOOD, C.COOKED),
    _mass(Gender.MASCULINE, "rice", "Reis", "Reises", C.FOOD, C.COOKED),
    _mass(Gender.FEMININE, "milk", "Milch", "Milch", C.DRINK),
    _mass(Gender.NEUTER, "water", "Wasser", "Wassers", C.DRINK),
    _mass(Gender.MASCULINE, "coffee", "Kaffee", "Kaffees", C.DRINK),
    _mass(Gender.MASCULINE, "tea", "Tee", "Tees", C.DRINK),
    _mass(Gender.MASCULINE, "juice", "Saft", "Saftes", C.DRINK),
    _mass(Gender.NEUTER, "beer", "Bier", "Bieres", C.DRINK),
    _mass(Gender.MASCULINE, "wine", "Wein", "Weines", C.DRINK),
)

_THINGS = (
    _m("table", "Tisch Tische Tisches", C.FURNITURE),
    _m("chair", "Stuhl Stühle Stuhls", C.FURNITURE),
    _n("bed", "Bett Betten Bettes", C.FURNITURE),
    _m("cupboard", "Schrank Schränke Schranks", C.FURNITURE),
    _n("shelf", "Regal Regale Regals", C.FURNITURE, plural="shelves"),
    _n("sofa", "Sofa Sofas Sofas", C.FURNITURE),
    _m("carpet", "Teppich Teppiche Teppichs", C.FURNITURE),
    _f("bag", "Tasche Taschen", C.CONTAINER, C.POSSESSION, C.HANGING),
    _m("suitcase", "Koffer Koffer Koffers", C.CONTAINER, C.POSSESSION, C.OPENABLE),
    _f("box", "Kiste Kisten", C.CONTAINER, C.OPENABLE, C.UPRIGHT),
    _m("basket", "Korb Körbe Korbes", C.CONTAINER, C.UPRIGHT),
    _f("bottle", "Flasche Flaschen", C.UTENSIL, C.OPENABLE, C.UPRIGHT),
    _f("cup", "Tasse Tassen", C.UTENSIL, C.UPRIGHT),
    _m("plate", "Teller Teller Tellers", C.UTENSIL, C.UPRIGHT),
    _f("vase", "Vase Vasen", C.UTENSIL, C.UPRIGHT),
    _n("knife", "Messer Messer Messers", C.UTENSIL, C.FLAT, plural="knives"),
    _m("spoon", "Löffel Löffel Löffels", C.UTENSIL, C.FLAT),
    _n("book", "Buch Bücher Buches", C.READABLE, C.WRITABLE, C.FLAT),
    _m("letter", "Brief Briefe Briefes", C.READABLE, C.WRITABLE, C.FLAT),
    _f("newspaper", "Zeitung Zeitungen", C.READABLE, C.FLAT),
    _f("postcard", "Postkarte Postkarten", C.READABLE, C.WRITABLE, C.FLAT),
    _m("key", "Schlüssel Schlüssel Schlüssels", C.POSSESSION, C.FLAT),
    _m("umbrella", "Regenschirm Regenschirme Regenschirms", C.POSSESSION, C.FLAT),
    _n("gift", "Geschenk Geschenke Geschenks", C.POSSESSION, C.FLAT),
    _m("ball", "Ball Bälle Balles", C.POSSESSION, C.FLAT),
    _n("picture", "Bild Bilder Bildes", C.POSSESSION, C.HANGING, C.FLAT),
    _f("flower", "Blume Blumen", C.POSSESSION, C.FLAT),
    _f("lamp", "Lampe Lampen", C.DEVICE, C.UPRIGHT),
    _n("radio", "Radio Radios Radios", C.DEVICE, C.UPRIGHT),
    _m("computer", "Computer Computer Computers", C.DEVICE, C.UPRIGHT),
    _f("machine", "Maschine Maschinen", C.DEVICE),
    _n("car", "Auto Autos Autos", C.VEHICLE),
    _n("bicycle", "Fahrrad Fahrräder Fahrrads", C.VEHICLE),
    _n("boat", "Boot Boote Bootes", C.VEHICLE),
    _m("bus", "Bus Busse Busses", C.VEHICLE),
    _m("coat", "Mantel Mäntel Mantels", C.CLOTHING, C.HANGING, C.FLAT),
    _n("shirt", "Hemd Hemden Hemdes", C.CLOTHING, C.FLAT),
    _n("dress", "Kleid Kleider Kleides", C.CLOTHING, C.HANGING, C.FLAT),
    _f("jacket", "Jacke Jacken", C.CLOTHING, C.HANGING, C.FLAT),
    _m("skirt", "Rock Röcke Rocks", C.CLOTHING, C.FLAT),
    _m("shoe", "Schuh Schuhe Schuhs", C.CLOTHING, C.FLAT),
    _f("door", "Tür Türen", C.OPENABLE, C.PART),
    _n("window", "Fenster Fenster Fensters", C.OPENABLE, C.PART),
    _mass(Gender.FEMININE, "time", "Zeit", "Zeit", C.ABSTRACT),
    _mass(Gender.NEUTER, "money", "Geld", "Geldes", C.ABSTRACT),
)

_PLACES = (
    _n("house", "Haus Häuser Hauses", C.BUILDING),
    _f("school", "Schule Schulen", C.BUILDING),
    _f("church", "Kirche Kirchen", C.BUILDING),
    _n("hospital", "Krankenhaus Krankenhäuser Krankenhauses", C.BUILDING),
    _n("museum", "Museum Museen Museums", C.BUILDING),
    _n("hotel", "Hotel Hotels Hotels", C.BUILDING),
    _n("restaurant", "Restaurant Restaurants Restaurants", C.BUILDING),
    _n("castle", "Schloss Schlösser Schlosses", C.BUILDING),
    _f("library", "Bibliothek Bibliotheken", C.BUILDING),
    _f("factory", "Fabrik Fabriken", C.BUILDING),
    _m("tower", "Turm Türme Turmes", C.BUILDING, C.TALL),
    _m("station", "Bahnhof Bahnhöfe Bahnhofs", C.BUILDING, C.UNPOSSESSED),
    _m("airport", "Flughafen Flughäfen Flughafens", C.BUILDING, C.UNPOSSESSED),
    _f("kitchen", "Küche Küchen", C.ROOM),
    _n("room", "Zimmer Zimmer Zimmers", C.ROOM),
    _m("cellar", "Keller Keller Kellers", C.ROOM),
    _n("office", "Büro Büros Büros", C.ROOM),
    _m("garden", "Garten Gärten Gartens", C.LANDSCAPE),
    _m("park", "Park Parks Parks", C.LANDSCAPE),
    _m("forest", "Wald Wälder Waldes", C.LANDSCAPE, C.UNPOSSESSED),
    _f("city", "Stadt Städte", C.LANDSCAPE),
    _n("village", "Dorf Dörfer Dorfes", C.LANDSCAPE),
    _m("lake", "See Seen Sees", C.LANDSCAPE, C.UNPOSSESSED),
    _m("river", "Fluss Flüsse Flusses", C.LANDSCAPE, C.UNPOSSESSED),
    _f("meadow", "Wiese Wiesen", C.LANDSCAPE),
    _f("island", "Insel Inseln", C.LANDSCAPE, C.UNPOSSESSED),
    _f("bridge", "Brücke Brücken", C.LANDSCAPE, C.UNPOSSESSED),
    _f("street", "Straße Straßen", C.LANDSCAPE),
    _m("market", "Markt Märkte Marktes", C.LANDSCAPE, C.UNPOSSESSED),
    _m("mountain", "Berg Berge Berges", C.LANDSCAPE, C.TALL, C.UNPOSSESSED),
    _m("tree", "Baum Bäume Baumes", C.LANDSCAPE, C.TALL),
    _f("wall", "Wand Wände"),
    _m("hook", "Haken Haken Hakens"),
    _n("roof", "Dach Dächer Daches", C.PART),
)

_EVENTS = (
    _n("concert", "Konzert Konzerte Konzerts", C.EVENT),
    _f("break", "Pause Pausen", C.EVENT),
    _f("wedding", "Hochzeit Hochzeiten", C.EVENT),
    _m("film", "Film Filme Films", C.EVENT),
    _f("journey", "Reise Reisen", C.EVENT),
    _n("meal", "Essen Essen Essens", C.EVENT),
)

_SIMPLE_NOUNS = _PEOPLE + _ANIMALS + _FOOD + _THINGS + _PLACES + _EVENTS
_SIMPLE_BY_ENGLISH = {entry.english: entry for entry in _SIMPLE_NOUNS}

# English modifier, German first element with its linking element, heads.
_COMPOUNDS = (
    ("kitchen", "Küchen", ("table", "chair", "window", "door", "knife")),
    ("garden", "Garten", ("table", "chair", "door", "house")),
    ("office", "Büro", ("chair", "window")),
    ("cellar", "Keller", ("window", "door")),
    ("hotel", "Hotel", ("room", "bed")),
    ("hospital", "Krankenhaus", ("bed", "room")),
    ("village", "Dorf", ("school", "church", "street")),
    ("city", "Stadt", ("park", "museum", "library")),
    ("school", "Schul", ("book", "bag")),
    ("car", "Auto", ("key", "door")),
    ("house", "Haus", ("key", "door")),
    ("apple", "Apfel", ("tree", "cake", "juice")),
    ("cherry", "Kirsch", ("tree", "cake", "juice")),
    ("potato", "Kartoffel", ("soup",)),
    ("tomato", "Tomaten", ("soup",)),
    ("coffee", "Kaffee", ("cup",)),
    ("wine", "Wein", ("bottle",)),
    ("beer", "Bier", ("bottle",)),
    ("flower", "Blumen", ("vase",)),
    ("birthday", "Geburtstags", ("cake", "gift")),
    ("winter", "Winter", ("coat", "jacket", "shoe")),
    ("summer", "Sommer", ("dress", "jacket")),
    ("leather", "Leder", ("bag", "jacket", "shoe")),
)


def _compound(modifier: str, first_element: str, head: Noun) -> Noun:
    def join(form: str) -> str:
        return first_element + form.lower()

    return Noun(
        f"{modifier} {head.english}", f"{modifier} {head.english_plural}", join(head.german),
        join(head.german_plural), head.gender, join(head.genitive), join(head.oblique), head.classes, head.mass,
    )  # fmt: skip


NOUNS: tuple[Noun, ...] = _SIMPLE_NOUNS + tuple(
    _compound(modifier, first_element, _SIMPLE_BY_ENGLISH[head])
    for modifier, first_element, heads in _COMPOUNDS
    for head in heads
)

_BY_ENGLISH = {entry.english: entry for entry in NOUNS}

PROFESSIONS: tuple[Noun, ...] = tuple(entry for entry in NOUNS if entry.feminine_form)

# Names that do not end in a sibilant, so that the German genitive is a plain -s.
NAMES: tuple[tuple[str, Gender], ...] = (
    ("Anna", Gender.FEMININE),
    ("Peter", Gender.MASCULINE),
    ("Maria", Gender.FEMININE),
    ("Paul", Gender.MASCULINE),
    ("Julia", Gender.FEMININE),
    ("Martin", Gender.MASCULINE),
    ("Laura", Gender.FEMININE),
    ("Stefan", Gender.MASCULINE),
)


def noun(english: str) -> Noun:
    """Return the noun with the given English singular."""
    return _BY_ENGLISH[english]


def nouns_of(*classes: C) -> tuple[Noun, ...]:
    """Return the nouns that belong to any of ``classes``, in lexicon order."""
    return tuple(entry for entry in NOUNS if entry.belongs_to(classes))
