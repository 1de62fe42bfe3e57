"""The verbs, grouped by what they combine with, and the modals.

A bar in a German infinitive marks a separable prefix: ``auf|machen``. English third persons
follow by rule; past tenses and German third persons and participles are spelled out.
"""

from __future__ import annotations

from dataclasses import replace

from lexicon import Case, EnglishVerb, Frame, GermanVerb, Modal, Preposition, Tense, Verb
from lexicon import NounClass as C

_PORTABLE = (C.READABLE, C.POSSESSION, C.CONTAINER, C.UTENSIL)
_GOODS = (*_PORTABLE, C.CLOTHING, C.DEVICE, C.VEHICLE, C.FURNITURE)
_SUPPLIES = (C.FOOD, C.DRINK)
_HUMAN = (C.HUMAN,)
_ANIMAL = (C.ANIMAL,)
_LIVING = (C.HUMAN, C.ANIMAL)


def _third_person(base: str) -> str:
    if base.endswith(("s", "sh", "ch", "x", "o")):
        return base + "es"
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ies"
    return base + "s"


def _english(words: str, past: str, object_preposition: str = "") -> EnglishVerb:
    base, _, particle = words.partition(" ")
    third = {"be": "is", "have": "has"}.get(base) or _third_person(base)
    return EnglishVerb(base, third, past, particle, object_preposition)


def _german(forms: str, first: str = "", preterite: str = "") -> GermanVerb:
    """Build a German verb from "infinitive third-singular participle", with *sein* or *sich* before it."""
    words = forms.split()
    auxiliary_sein = words[0] == "ist"
    reflexive = words[0] == "sich"
    infinitive, third, participle = words[1:] if auxiliary_sein or reflexive else words
    prefix, bar, stem = infinitive.partition("|")
    if not bar:
        prefix, stem = "", infinitive
    return GermanVerb(
        stem, first or stem[:-1], third, stem, participle, auxiliary_sein, prefix, reflexive,
        preterite, preterite + ("n" if preterite.endswith("e") else "en") if preterite else "",
    )  # fmt: skip


def _verb(
    frame: Frame, english: str, past: str, german: str, objects: tuple[C, ...] = (), *,
    subjects: tuple[C, ...] = _HUMAN, first: str = "", link: str = "", governs: Preposition | None = None,
    to_only: bool = False, place: bool = False, durative: bool = False, stative: bool = False,
    preterite: str = "", indefinite_object: bool = False, involuntary: bool = False,
) -> Verb:  # fmt: skip
    return Verb(
        _english(english, past, link), _german(german, first, preterite), frame, subjects, objects, governs,
        to_only, place, durative, stative, indefinite_object, involuntary,
    )  # fmt: skip


def _governs(english: str, german: str, case: Case) -> Preposition:
    return Preposition(english, german, case)


_TR, _IN, _DA, _DI = Frame.TRANSITIVE, Frame.INTRANSITIVE, Frame.DATIVE, Frame.DITRANSITIVE
_PP, _MO, _PL, _PO = Frame.PREPOSITIONAL, Frame.MOTION, Frame.PLACEMENT, Frame.POSITION
_AKK, _DAT = Case.ACCUSATIVE, Case.DATIVE

VERBS: tuple[Verb, ...] = (
    # Transitive verbs.
    _verb(_TR, "buy", "bought", "kaufen kauft gekauft", (*_SUPPLIES, *_GOODS), place=True),
    _verb(_TR, "sell", "sold", "verkaufen verkauft verkauft", (*_SUPPLIES, *_GOODS), place=True),
    _verb(_TR, "need", "needed", "brauchen braucht gebraucht", _GOODS, stative=True),
    _verb(_TR, "find", "found", "finden findet gefunden", _PORTABLE, place=True),
    _verb(_TR, "look", "looked", "suchen sucht gesucht", _PORTABLE, link="for", place=True),
    _verb(_TR, "lose", "lost", "verlieren verliert verloren", _PORTABLE, place=True, involuntary=True),
    _verb(_TR, "forget", "forgot", "vergessen vergisst vergessen", _PORTABLE, involuntary=True),
    _verb(_TR, "carry", "carried", "tragen trägt getragen", (*_PORTABLE, C.FURNITURE)),
    _verb(_TR, "repair", "repaired", "reparieren repariert repariert", (C.DEVICE, C.VEHICLE, C.FURNITURE, C.PART)),
    _verb(_TR, "clean", "cleaned", "putzen putzt geputzt", (C.UTENSIL, C.ROOM, C.PART)),
    _verb(_TR, "wash", "washed", "waschen wäscht gewaschen", (C.CLOTHING, C.VEHICLE)),
    _verb(_TR, "read", "read", "lesen liest gelesen", (C.READABLE,), place=True),
    _verb(_TR, "write", "wrote", "schreiben schreibt geschrieben", (C.WRITABLE,)),
    _verb(_TR, "eat", "ate", "essen isst gegessen", (C.FOOD,), place=True),
    # German has another verb for the eating of animals.
    _verb(_TR, "eat", "ate", "fressen frisst gefressen", (C.FODDER,), subjects=_ANIMAL),
    _verb(_TR, "drink", "drank", "trinken trinkt getrunken", (C.DRINK,), place=True),
    _verb(_TR, "cook", "cooked", "kochen kocht gekocht", (C.COOKED,)),
    _verb(_TR, "bake", "baked", "backen backt gebacken", (C.BAKED,)),
    _verb(_TR, "order", "ordered", "bestellen bestellt bestellt", _SUPPLIES),
    _verb(_TR, "see", "saw", "sehen sieht gesehen", (*_LIVING, C.BUILDING, C.VEHICLE, C.PART), involuntary=True),
    _verb(_TR, "hear", "heard", "hören hört gehört", _LIVING, involuntary=True),
    _verb(_TR, "visit", "visited", "besuchen besucht besucht", (C.HUMAN, C.BUILDING)),
    _verb(_TR, "know", "knew", "kennen kennt gekannt", _HUMAN, stative=True),
    _verb(_TR, "love", "loved", "lieben liebt geliebt", _LIVING, stative=True),
    _verb(_TR, "ask", "asked", "fragen fragt gefragt", _HUMAN),
    _verb(_TR, "meet", "met", "treffen trifft getroffen", _HUMAN, place=True),
    _verb(_TR, "understand", "understood", "verstehen versteht verstanden", _HUMAN, stative=True),
    _verb(_TR, "greet", "greeted", "begrüßen begrüßt begrüßt", _HUMAN),
    _verb(_TR, "feed", "fed", "füttern füttert gefüttert", _ANIMAL, first="füttere"),
    _verb(_TR, "build", "built", "bauen baut gebaut", (C.BUILDING, C.FURNITURE)),
    _verb(_TR, "draw", "drew", "zeichnen zeichnet gezeichnet", (C.ANIMAL, C.BUILDING, C.TALL)),
    _verb(_TR, "receive", "received", "bekommen bekommt bekommen", (C.READABLE, C.POSSESSION), involuntary=True),
    _verb(_TR, "chase", "chased", "jagen jagt gejagt", _ANIMAL, subjects=_ANIMAL),
    _verb(_TR, "bite", "bit", "beißen beißt gebissen", _HUMAN, subjects=_ANIMAL, involuntary=True),
    _verb(
        _TR,
        "have",
        "had",
        "haben hat gehabt",
        (*_GOODS, C.ANIMAL, C.KIN, C.ABSTRACT),
        preterite="hatte",
        stative=True,
        indefinite_object=True,
    ),
    # Transitive verbs with a separable prefix.
    _verb(_TR, "invite", "invited", "ein|laden lädt eingeladen", _HUMAN),
    _verb(_TR, "call", "called", "an|rufen ruft angerufen", _HUMAN),
    _verb(_TR, "pick up", "picked", "ab|holen holt abgeholt", _HUMAN),
    _verb(_TR, "look", "looked", "an|sehen sieht angesehen", (C.POSSESSION, *_LIVING), link="at"),
    _verb(_TR, "bring along", "brought", "mit|bringen bringt mitgebracht", (*_SUPPLIES, C.READABLE)),
    _verb(_TR, "take along", "took", "mit|nehmen nimmt mitgenommen", (C.POSSESSION, C.READABLE)),
    _verb(_TR, "turn on", "turned", "ein|schalten schaltet eingeschaltet", (C.DEVICE,)),
    _verb(_TR, "turn off", "turned", "aus|schalten schaltet ausgeschaltet", (C.DEVICE,)),
    _verb(_TR, "open", "opened", "auf|machen macht aufgemacht", (C.OPENABLE,)),
    _verb(_TR, "close", "closed", "zu|machen macht zugemacht", (C.OPENABLE,)),
    _verb(_TR, "tidy up", "tidied", "auf|räumen räumt aufgeräumt", (C.ROOM,)),
    _verb(_TR, "put on", "put", "an|ziehen zieht angezogen", (C.CLOTHING,)),
    _verb(_TR, "take off", "took", "aus|ziehen zieht ausgezogen", (C.CLOTHING,)),
    _verb(_TR, "try on", "tried", "an|probieren probiert anprobiert", (C.CLOTHING,)),
    # Verbs whose German object is a dative.
    _verb(_DA, "help", "helped", "helfen hilft geholfen", _HUMAN),
    _verb(_DA, "thank", "thanked", "danken dankt gedankt", _HUMAN),
    _verb(_DA, "trust", "trusted", "vertrauen vertraut vertraut", _HUMAN, stative=True),
    _verb(_DA, "answer", "answered", "antworten antwortet geantwortet", _HUMAN),
    _verb(_DA, "follow", "followed", "ist folgen folgt gefolgt", _LIVING, subjects=_LIVING),
    _verb(_DA, "congratulate", "congratulated", "gratulieren gratuliert gratuliert", _HUMAN),
    _verb(_DA, "listen", "listened", "zu|hören hört zugehört", _HUMAN, link="to"),
    _verb(
        _DA,
        "belong",
        "belonged",
        "gehören gehört gehört",
        _HUMAN,
        link="to",
        subjects=(C.VEHICLE, C.POSSESSION, C.BUILDING, C.READABLE, C.ANIMAL),
        stative=True,
    ),
    # Verbs with two objects.
    _verb(_DI, "give", "gave", "geben gibt gegeben", (C.FOOD, C.POSSESSION, C.READABLE)),
    _verb(_DI, "show", "showed", "zeigen zeigt gezeigt", (C.POSSESSION, C.BUILDING, C.READABLE, C.CLOTHING)),
    _verb(_DI, "send", "sent", "schicken schickt geschickt", (C.READABLE, C.POSSESSION)),
    _verb(_DI, "lend", "lent", "leihen leiht geliehen", (C.VEHICLE, C.READABLE, C.CONTAINER)),
    _verb(_DI, "bring", "brought", "bringen bringt gebracht", (*_SUPPLIES, C.POSSESSION)),
    _verb(_DI, "offer", "offered", "an|bieten bietet angeboten", _SUPPLIES),
    _verb(_DI, "recommend", "recommended", "empfehlen empfiehlt empfohlen", (C.BUILDING, C.READABLE), to_only=True),
    _verb(
        _DI,
        "return",
        "returned",
        "zurück|geben gibt zurückgegeben",
        (C.READABLE, C.POSSESSION, C.VEHICLE),
        to_only=True,
    ),
    _verb(_DI, "introduce", "introduced", "vor|stellen stellt vorgestellt", _HUMAN, to_only=True),
    # Verbs with a prepositional object.
    _verb(_PP, "wait", "waited", "warten wartet gewartet", (C.HUMAN, C.VEHICLE), governs=_governs("for", "auf", _AKK)),
    _verb(_PP, "think", "thought", "denken denkt gedacht", (C.HUMAN, C.EVENT), governs=_governs("of", "an", _AKK)),
    _verb(_PP, "speak", "spoke", "sprechen spricht gesprochen", _HUMAN, governs=_governs("with", "mit", _DAT)),
    _verb(
        _PP,
        "dream",
        "dreamed",
        "träumen träumt geträumt",
        (C.EVENT, C.LANDSCAPE, C.HUMAN),
        governs=_governs("of", "von", _DAT),
    ),
    _verb(
        _PP, "laugh", "laughed", "lachen lacht gelacht", (C.HUMAN, C.READABLE), governs=_governs("about", "über", _AKK)
    ),
    # Reflexive verbs.
    _verb(
        _PP,
        "be interested",
        "was",
        "sich interessieren interessiert interessiert",
        (C.READABLE, C.BUILDING, C.DEVICE),
        governs=_governs("in", "für", _AKK),
        stative=True,
    ),
    _verb(
        _PP,
        "look forward",
        "looked",
        "sich freuen freut gefreut",
        (C.EVENT, C.HUMAN),
        governs=_governs("to", "auf", _AKK),
    ),
    _verb(
        _PP,
        "take care",
        "took",
        "sich kümmern kümmert gekümmert",
        _LIVING,
        first="kümmere",
        governs=_governs("of", "um", _AKK),
    ),
    _verb(
        _PP,
        "complain",
        "complained",
        "sich beschweren beschwert beschwert",
        (C.HUMAN, C.EVENT, C.DEVICE),
        governs=_governs("about", "über", _AKK),
    ),
    _verb(_IN, "hurry", "hurried", "sich beeilen beeilt beeilt"),
    _verb(_IN, "rest", "rested", "sich aus|ruhen ruht ausgeruht", subjects=_LIVING, place=True, durative=True),
    _verb(_IN, "get dressed", "got", "sich an|ziehen zieht angezogen"),
    # Intransitive verbs.
    _verb(_IN, "sleep", "slept", "schlafen schläft geschlafen", subjects=_LIVING, place=True, durative=True),
    _verb(_IN, "work", "worked", "arbeiten arbeitet gearbeitet", place=True, durative=True),
    _verb(_IN, "sing", "sang", "singen singt gesungen", place=True, durative=True),
    _verb(_IN, "dance", "danced", "tanzen tanzt getanzt", place=True, durative=True),
    _verb(_IN, "cry", "cried", "weinen weint geweint", place=True, durative=True, involuntary=True),
    _verb(_IN, "play", "played", "spielen spielt gespielt", subjects=_LIVING, place=True, durative=True),
    _verb(_IN, "smile", "smiled", "lächeln lächelt gelächelt", first="lächle"),
    _verb(_IN, "get up", "got", "ist auf|stehen steht aufgestanden"),
    _verb(_IN, "wake up", "woke", "ist auf|wachen wacht aufgewacht", subjects=_LIVING, involuntary=True),
    _verb(
        _IN,
        "fall asleep",
        "fell",
        "ist ein|schlafen schläft eingeschlafen",
        subjects=_LIVING,
        place=True,
        involuntary=True,
    ),
    _verb(_IN, "arrive", "arrived", "ist an|kommen kommt angekommen", involuntary=True),
    _verb(_IN, "come back", "came", "ist zurück|kommen kommt zurückgekommen"),
    _verb(_IN, "watch television", "watched", "fern|sehen sieht ferngesehen", durative=True),
    # Motion, placement and position.
    _verb(_MO, "go", "went", "ist gehen geht gegangen"),
    _verb(_MO, "run", "ran", "ist rennen rennt gerannt", subjects=_LIVING),
    _verb(_MO, "drive", "drove", "ist fahren fährt gefahren"),
    _verb(_MO, "hike", "hiked", "ist wandern wandert gewandert", first="wandere"),
    _verb(_MO, "come", "came", "ist kommen kommt gekommen", subjects=_LIVING),
    _verb(_PL, "lay", "laid", "legen legt gelegt", (C.FLAT,)),
    _verb(_PL, "place", "placed", "stellen stellt gestellt", (C.UPRIGHT,)),
    _verb(_PL, "hang", "hung", "hängen hängt gehängt", (C.HANGING,)),
    _verb(_PO, "lie", "lay", "liegen liegt gelegen", subjects=(C.FLAT,), stative=True),
    _verb(_PO, "stand", "stood", "stehen steht gestanden", subjects=(C.UPRIGHT,), stative=True),
    _verb(_PO, "hang", "hung", "hängen hängt gehangen", subjects=(C.HANGING,), stative=True),
    _verb(_PO, "sit", "sat", "sitzen sitzt gesessen", subjects=_LIVING),
    _verb(_PO, "live", "lived", "wohnen wohnt gewohnt", stative=True),
)

# Verbs with a clause as their object; German distinguishes knowing a fact from knowing a person.
CLAUSAL_VERBS: tuple[Verb, ...] = (
    _verb(Frame.CLAUSAL, "know", "knew", "wissen weiß gewusst", first="weiß", preterite="wusste"),
    _verb(Frame.CLAUSAL, "believe", "believed", "glauben glaubt geglaubt"),
    _verb(Frame.CLAUSAL, "say", "said", "sagen sagt gesagt"),
    _verb(Frame.CLAUSAL, "hope", "hoped", "hoffen hofft gehofft"),
    _verb(Frame.CLAUSAL, "hear", "heard", "hören hört gehört"),
)

# The verbs that can also introduce an indirect question.
KNOW = CLAUSAL_VERBS[0]
ASK = _verb(Frame.CLAUSAL, "ask", "asked", "fragen fragt gefragt")

CONTROL_VERBS: tuple[Verb, ...] = (
    _verb(Frame.CONTROL, "try", "tried", "versuchen versucht versucht"),
    _verb(Frame.CONTROL, "begin", "began", "an|fangen fängt angefangen"),
    _verb(Frame.CONTROL, "hope", "hoped", "hoffen hofft gehofft"),
    _verb(Frame.CONTROL, "forget", "forgot", "vergessen vergisst vergessen"),
    _verb(Frame.CONTROL, "promise", "promised", "versprechen verspricht versprochen"),
)

BE = _verb(Frame.COPULA, "be", "was", "ist sein ist gewesen", first="bin", preterite="war")
BE = replace(BE, german=replace(BE.german, plural="sind"))
STAY = _verb(Frame.POSITION, "stay", "stayed", "ist bleiben bleibt geblieben")
LIVE = next(verb for verb in VERBS if verb.english.base == "live")
WORK = next(verb for verb in VERBS if verb.english.base == "work")

RAIN = _verb(_IN, "rain", "rained", "regnen regnet geregnet")
SNOW = _verb(_IN, "snow", "snowed", "schneien schneit geschneit")
RAINING = _verb(_IN, "be raining", "was", "regnen regnet geregnet")
SNOWING = _verb(_IN, "be snowing", "was", "schneien schneit geschneit")

FUTURE = Modal("will", "", None, "werde", "wird", "werden")
MUST = Modal("must", "", None, "muss", "muss", "müssen")
# What one must not do one is not allowed to do: German *muss nicht* would mean "need not".
MUST_NOT = Modal("must", "", None, "darf", "darf", "dürfen")

MODALS: tuple[Modal, ...] = (
    MUST,
    Modal("can", "", None, "kann", "kann", "können"),
    Modal("should", "", None, "sollte", "sollte", "sollten"),
    Modal("", "", EnglishVerb("want", "wants", "wanted"), "will", "will", "wollen"),
    Modal("would", "like to", None, "möchte", "möchte", "möchten"),
    Modal("", "", EnglishVerb("want", "wants", "wanted"), "wollte", "wollte", "wollten", Tense.PAST),
    Modal("", "", EnglishVerb("have", "has", "had"), "musste", "musste", "mussten", Tense.PAST, negatable=False),
)
