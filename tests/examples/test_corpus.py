"""The demo corpus: reproducible, split properly, and in correct German.

The expected sentences and forms below were written by hand, not copied from the generator.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from clause import Argument, Clause, Comparison, FixedComplement, Fronted, PredicateProfession, PrepositionalPhrase
from declension import (
    ALL,
    DEFINITE,
    DEMONSTRATIVE,
    INDEFINITE,
    MANY,
    NO_DETERMINER,
    POSSESSIVES,
    Determiner,
    attributive_form,
    relative_pronoun_form,
)
from english_syntax import english_declarative, english_infinitive, english_interrogative
from german_syntax import german_infinitive, german_verb_final, german_verb_first, german_verb_second
from lexicon import Adjective, Adverbial, Case, Gender, Modal, Number, Preposition, Tense, Verb
from make_corpus import main, word_forms
from modifiers import ADJECTIVES, english_numeral, german_numeral
from noun_phrase import Name, NounPhrase
from nouns import NOUNS, noun
from pronouns import HE, I_PRONOUN, SHE, THEY, RelativePronoun
from relative_clause import RelativeClause
from sentence import sentence_pair
from verbs import BE, CONTROL_VERBS, FUTURE, MODALS, MUST_NOT, VERBS

EXAMPLES = Path(__file__).parents[2] / "examples"
CORPUS = EXAMPLES / "quickstart" / "corpus"
LANGUAGES = ("en", "de")
SPLITS = ("train", "valid", "test")
NOMINATIVE, ACCUSATIVE, DATIVE, GENITIVE = Case.NOMINATIVE, Case.ACCUSATIVE, Case.DATIVE, Case.GENITIVE
SINGULAR, PLURAL = Number.SINGULAR, Number.PLURAL
MY, HIS, HER, OUR = POSSESSIVES[:4]


def lines(split: str, language: str) -> list[str]:
    return (CORPUS / f"{split}.{language}").read_text(encoding="utf-8").splitlines()


# The committed files.


@pytest.fixture(scope="module")
def regenerated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    assert main(["--output", str(folder)]) == 0
    return folder


def test_regeneration_gives_the_committed_files(regenerated: Path) -> None:
    for split in SPLITS:
        for language in LANGUAGES:
            name = f"{split}.{language}"
            assert (regenerated / name).read_bytes() == (CORPUS / name).read_bytes(), name
    assert len(list(regenerated.iterdir())) == 6, "temporary files were left behind"


def test_sizes() -> None:
    for language in LANGUAGES:
        assert [len(lines(split, language)) for split in SPLITS] == [12000, 400, 400]
    assert sum(path.stat().st_size for path in CORPUS.iterdir()) < 1_500_000


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_sentence_occurs_twice(language: str) -> None:
    sentences = [line for split in SPLITS for line in lines(split, language)]
    assert len(set(sentences)) == len(sentences)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_held_out_word_is_frequent_in_training(language: str) -> None:
    counts = Counter(word for line in lines("train", language) for word in word_forms(line))
    held_out = {word for split in ("valid", "test") for line in lines(split, language) for word in word_forms(line)}
    assert min(counts[word] for word in held_out) >= 5


@pytest.mark.parametrize("language", LANGUAGES)
def test_spelling_and_length(language: str) -> None:
    for line in lines("train", language):
        assert line[0].isupper(), line
        assert line[-1] in ".?", line
        assert line.isprintable(), line
        assert "  " not in line, line
        assert " ," not in line, line
        assert ",," not in line, line
        assert 3 <= len(line.split()) <= 16, line


# The command.


def test_refuses_to_overwrite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    existing = tmp_path / "valid.de"
    existing.write_text("mine\n", encoding="utf-8")
    assert main(["--output", str(tmp_path), "--train", "4000"]) != 0
    message = capsys.readouterr().err
    assert "valid.de exists already" in message
    assert message.count("\n") == 1
    assert existing.read_text(encoding="utf-8") == "mine\n"
    assert list(tmp_path.iterdir()) == [existing]


def test_force_overwrites_and_sizes_and_seed_count(tmp_path: Path) -> None:
    sizes = ["--train", "4000", "--valid", "20", "--test", "30"]
    assert main(["--output", str(tmp_path), *sizes]) == 0
    first = (tmp_path / "train.en").read_text(encoding="utf-8")
    assert main(["--output", str(tmp_path), *sizes, "--seed", "2", "--force"]) == 0
    second = (tmp_path / "train.en").read_text(encoding="utf-8")
    assert first != second
    assert [len((tmp_path / f"{split}.de").read_text().splitlines()) for split in SPLITS] == [4000, 20, 30]


@pytest.mark.parametrize(
    ("option", "value", "valid_range"),
    [
        ("--train", "10", "4000 to 50000"),
        ("--train", "50001", "4000 to 50000"),
        ("--valid", "0", "1 to 2000"),
        ("--test", "-3", "1 to 2000"),
        ("--seed", "-1", "0 to 4294967295"),
    ],
)
def test_refuses_bad_numbers(
    option: str, value: str, valid_range: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--output", str(tmp_path), option, value]) != 0
    message = capsys.readouterr().err
    assert f"{option} must be from {valid_range}, not {value}" in message
    assert list(tmp_path.iterdir()) == []


def test_runs_as_a_script_and_reports_an_unusable_folder(tmp_path: Path) -> None:
    not_a_folder = tmp_path / "file"
    not_a_folder.write_text("")
    command = [sys.executable, str(EXAMPLES / "grammar" / "make_corpus.py"), "--output", str(not_a_folder / "corpus")]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode != 0
    assert finished.stderr.startswith("make_corpus: ")
    assert "Traceback" not in finished.stderr


# Word forms.


def adjective(english: str) -> Adjective:
    return next(entry for entry in ADJECTIVES if entry.english == english)


def verb(english: str, german: str = "") -> Verb:
    return next(
        entry
        for entry in (*VERBS, *CONTROL_VERBS)
        if f"{entry.english.base} {entry.english.particle}".strip() == english
        and (not german or entry.german.full_infinitive == german)
    )


def modal(german_third: str) -> Modal:
    return next(entry for entry in (*MODALS, MUST_NOT, FUTURE) if entry.german_third == german_third)


def phrase(english: str, determiner: Determiner = DEFINITE, *, adj: str = "", number: Number = SINGULAR) -> NounPhrase:
    return NounPhrase(noun(english), number, determiner, adjective(adj) if adj else None)


def test_every_german_noun_is_inflected_plausibly() -> None:
    for entry in NOUNS:
        forms = [entry.german_form(case, number) for number in (SINGULAR, PLURAL) for case in Case]
        assert all(form[0].isupper() and form[1:].islower() for form in forms), entry
        if entry.gender is Gender.FEMININE:
            assert entry.genitive == entry.german
        else:
            assert entry.genitive.endswith(("s", "n")), entry
        if not entry.mass:
            assert entry.german_form(DATIVE, PLURAL).endswith(("n", "s")), entry


@pytest.mark.parametrize(
    ("english", "expected"),
    [
        # Article with nominative, accusative, dative and genitive singular; nominative and dative plural.
        ("man", "der Mann, den Mann, dem Mann, des Mannes; die Männer, den Männern"),
        ("boy", "der Junge, den Jungen, dem Jungen, des Jungen; die Jungen, den Jungen"),
        ("neighbour", "der Nachbar, den Nachbarn, dem Nachbarn, des Nachbarn; die Nachbarn, den Nachbarn"),
        ("bear", "der Bär, den Bären, dem Bären, des Bären; die Bären, den Bären"),
        ("girl", "das Mädchen, das Mädchen, dem Mädchen, des Mädchens; die Mädchen, den Mädchen"),
        ("daughter", "die Tochter, die Tochter, der Tochter, der Tochter; die Töchter, den Töchtern"),
        ("car", "das Auto, das Auto, dem Auto, des Autos; die Autos, den Autos"),
        ("museum", "das Museum, das Museum, dem Museum, des Museums; die Museen, den Museen"),
        ("bus", "der Bus, den Bus, dem Bus, des Busses; die Busse, den Bussen"),
        ("kitchen table", "der Küchentisch, den Küchentisch, dem Küchentisch, des Küchentisches; "
                          "die Küchentische, den Küchentischen"),
        ("birthday gift", "das Geburtstagsgeschenk, das Geburtstagsgeschenk, dem Geburtstagsgeschenk, "
                          "des Geburtstagsgeschenks; die Geburtstagsgeschenke, den Geburtstagsgeschenken"),
        ("house key", "der Hausschlüssel, den Hausschlüssel, dem Hausschlüssel, des Hausschlüssels; "
                      "die Hausschlüssel, den Hausschlüsseln"),
        ("school bag", "die Schultasche, die Schultasche, der Schultasche, der Schultasche; "
                       "die Schultaschen, den Schultaschen"),
    ],
)  # fmt: skip
def test_nouns(english: str, expected: str) -> None:
    singular = [phrase(english).german(case) for case in (NOMINATIVE, ACCUSATIVE, DATIVE, GENITIVE)]
    plural = [phrase(english, number=PLURAL).german(case) for case in (NOMINATIVE, DATIVE)]
    assert f"{', '.join(singular)}; {', '.join(plural)}" == expected


@pytest.mark.parametrize(
    ("determiner", "english", "adj", "number", "case", "expected"),
    [
        (DEFINITE, "table", "old", SINGULAR, NOMINATIVE, "der alte Tisch"),
        (DEFINITE, "table", "old", SINGULAR, ACCUSATIVE, "den alten Tisch"),
        (DEFINITE, "lamp", "old", SINGULAR, ACCUSATIVE, "die alte Lampe"),
        (DEFINITE, "lamp", "old", SINGULAR, DATIVE, "der alten Lampe"),
        (DEFINITE, "book", "old", PLURAL, NOMINATIVE, "die alten Bücher"),
        (INDEFINITE, "table", "old", SINGULAR, NOMINATIVE, "ein alter Tisch"),
        (INDEFINITE, "table", "old", SINGULAR, ACCUSATIVE, "einen alten Tisch"),
        (INDEFINITE, "book", "old", SINGULAR, ACCUSATIVE, "ein altes Buch"),
        (INDEFINITE, "book", "old", SINGULAR, DATIVE, "einem alten Buch"),
        (INDEFINITE, "lamp", "old", SINGULAR, DATIVE, "einer alten Lampe"),
        (MY, "horse", "young", SINGULAR, NOMINATIVE, "mein junges Pferd"),
        (OUR, "friend", "young", SINGULAR, ACCUSATIVE, "unseren jungen Freund"),
        (HER, "child", "sick", PLURAL, DATIVE, "ihren kranken Kindern"),
        (DEMONSTRATIVE, "house", "high", SINGULAR, DATIVE, "diesem hohen Haus"),
        (ALL, "house", "expensive", PLURAL, NOMINATIVE, "alle teuren Häuser"),
        (MANY, "house", "dark", PLURAL, NOMINATIVE, "viele dunkle Häuser"),
        (NO_DETERMINER, "woman", "tired", PLURAL, DATIVE, "müden Frauen"),
        (NO_DETERMINER, "milk", "cold", SINGULAR, ACCUSATIVE, "kalte Milch"),
        (NO_DETERMINER, "coffee", "warm", SINGULAR, ACCUSATIVE, "warmen Kaffee"),
        (NO_DETERMINER, "beer", "cold", SINGULAR, NOMINATIVE, "kaltes Bier"),
    ],
)
def test_adjective_endings(
    determiner: Determiner, english: str, adj: str, number: Number, case: Case, expected: str
) -> None:
    assert phrase(english, determiner, adj=adj, number=number).german(case) == expected


def test_adjective_after_genitive_of_name_is_strong() -> None:
    car = NounPhrase(noun("car"), SINGULAR, possessor=Name("Anna", Gender.FEMININE), adjective=adjective("new"))
    assert car.english(NOMINATIVE) == "Anna's new car"
    assert car.german(NOMINATIVE) == "Annas neues Auto"
    assert car.german(DATIVE) == "Annas neuem Auto"
    assert attributive_form(adjective("new"), DEFINITE.declension, DATIVE, Gender.NEUTER, SINGULAR) == "neuen"


def test_possessor_follows_in_the_genitive() -> None:
    coat = NounPhrase(noun("coat"), SINGULAR, possessor=phrase("student", MY), adjective=adjective("red"))
    assert coat.english(ACCUSATIVE) == "my student's red coat"
    assert coat.german(ACCUSATIVE) == "den roten Mantel meines Studenten"
    roof = NounPhrase(noun("roof"), SINGULAR, possessor=phrase("church"), of_possessor=True)
    assert roof.english(NOMINATIVE) == "the roof of the church"
    assert roof.german(NOMINATIVE) == "das Dach der Kirche"


def test_indefinite_article_before_vowel() -> None:
    assert phrase("apple", INDEFINITE).english(NOMINATIVE) == "an apple"
    assert phrase("table", INDEFINITE, adj="old").english(NOMINATIVE) == "an old table"
    assert phrase("apple", INDEFINITE, adj="big").english(NOMINATIVE) == "a big apple"


@pytest.mark.parametrize(
    ("gender", "number", "expected"),
    [
        (Gender.MASCULINE, SINGULAR, "der den dem dessen"),
        (Gender.FEMININE, SINGULAR, "die die der deren"),
        (Gender.NEUTER, SINGULAR, "das das dem dessen"),
        (Gender.FEMININE, PLURAL, "die die denen deren"),
    ],
)
def test_relative_pronouns(gender: Gender, number: Number, expected: str) -> None:
    cases = (NOMINATIVE, ACCUSATIVE, DATIVE, GENITIVE)
    assert " ".join(relative_pronoun_form(case, gender, number) for case in cases) == expected


@pytest.mark.parametrize(
    ("value", "english", "german"),
    [
        (2, "two", "zwei"),
        (7, "seven", "sieben"),
        (12, "twelve", "zwölf"),
        (16, "sixteen", "sechzehn"),
        (17, "seventeen", "siebzehn"),
        (20, "twenty", "zwanzig"),
        (21, "twenty-one", "einundzwanzig"),
        (23, "twenty-three", "dreiundzwanzig"),
        (30, "thirty", "dreißig"),
        (48, "forty-eight", "achtundvierzig"),
        (66, "sixty-six", "sechsundsechzig"),
        (77, "seventy-seven", "siebenundsiebzig"),
        (99, "ninety-nine", "neunundneunzig"),
    ],
)
def test_numerals(value: int, english: str, german: str) -> None:
    assert (english_numeral(value), german_numeral(value)) == (english, german)


@pytest.mark.parametrize("value", [-1, 0, 1, 100])
def test_numerals_out_of_range(value: int) -> None:
    with pytest.raises(ValueError, match="2 to 99"):
        german_numeral(value)


# Clauses.


IN_ACCUSATIVE = Preposition("into", "in", ACCUSATIVE)
IN_DATIVE = Preposition("in", "in", DATIVE)
YESTERDAY = Adverbial("yesterday", "gestern")
YESTERDAY_FIRST = Fronted("yesterday", "gestern", Argument.NONE)


@pytest.mark.parametrize(
    ("clause", "english", "german"),
    [
        (
            Clause(phrase("man"), verb("open"), accusative=phrase("window", DEFINITE, adj="dirty")),
            "The man opens the dirty window.",
            "Der Mann macht das schmutzige Fenster auf.",
        ),
        (
            Clause(phrase("man"), verb("open"), Tense.PAST, accusative=phrase("door"), fronted=YESTERDAY_FIRST),
            "Yesterday the man opened the door.",
            "Gestern hat der Mann die Tür aufgemacht.",
        ),
        (
            Clause(SHE, verb("pick up"), modal=modal("will"), accusative=HE, time=Adverbial("tomorrow", "morgen")),
            "She wants to pick him up tomorrow.",
            "Sie will ihn morgen abholen.",
        ),
        (
            Clause(SHE, verb("pick up"), accusative=phrase("child", HER, number=PLURAL)),
            "She picks up her children.",
            "Sie holt ihre Kinder ab.",
        ),
        (
            Clause(I_PRONOUN, verb("give"), Tense.PAST, accusative=phrase("apple"), dative=phrase("child")),
            "I gave the child the apple.",
            "Ich habe dem Kind den Apfel gegeben.",
        ),
        (
            Clause(phrase("boy"), verb("introduce"), accusative=SHE, dative=phrase("teacher")),
            "The boy introduces her to the teacher.",
            "Der Junge stellt sie dem Lehrer vor.",
        ),
        (
            Clause(THEY, verb("help"), Tense.PAST, dative=phrase("neighbour", OUR)),
            "They helped our neighbour.",
            "Sie haben unserem Nachbarn geholfen.",
        ),
        (
            Clause(HE, verb("go"), Tense.PAST, complement=PrepositionalPhrase(IN_ACCUSATIVE, phrase("garden"))),
            "He went into the garden.",
            "Er ist in den Garten gegangen.",
        ),
        (
            Clause(HE, verb("sleep"), adjunct=PrepositionalPhrase(IN_DATIVE, phrase("garden"))),
            "He sleeps in the garden.",
            "Er schläft im Garten.",
        ),
        (
            Clause(HE, verb("go"), complement=PrepositionalPhrase(IN_ACCUSATIVE, phrase("house")), negated=True),
            "He does not go into the house.",
            "Er geht nicht ins Haus.",
        ),
        (
            Clause(SHE, verb("buy"), accusative=phrase("coat", INDEFINITE), negated=True),
            "She does not buy a coat.",
            "Sie kauft keinen Mantel.",
        ),
        (
            Clause(SHE, verb("buy"), accusative=phrase("coat"), negated=True),
            "She does not buy the coat.",
            "Sie kauft den Mantel nicht.",
        ),
        (
            Clause(SHE, verb("eat"), modal=MUST_NOT, accusative=phrase("apple", NO_DETERMINER, number=PLURAL),
                   negated=True),
            "She must not eat apples.",
            "Sie darf keine Äpfel essen.",
        ),
        (
            Clause(phrase("dog"), verb("eat", "fressen"), accusative=phrase("bread")),
            "The dog eats the bread.",
            "Der Hund frisst das Brot.",
        ),
        (
            Clause(phrase("man"), verb("hurry"), Tense.PAST, fronted=YESTERDAY_FIRST),
            "Yesterday the man hurried.",
            "Gestern hat sich der Mann beeilt.",
        ),
        (
            Clause(I_PRONOUN, verb("rest"), modal=FUTURE),
            "I will rest.",
            "Ich werde mich ausruhen.",
        ),
        (
            Clause(phrase("sister", MY), BE, complement=PredicateProfession(noun("doctor"), Gender.FEMININE)),
            "My sister is a doctor.",
            "Meine Schwester ist Ärztin.",
        ),
        (
            Clause(phrase("tree"), BE, complement=Comparison(adjective("high"), phrase("house"), equal=False)),
            "The tree is higher than the house.",
            "Der Baum ist höher als das Haus.",
        ),
        (
            Clause(HE, BE, Tense.PAST, complement=FixedComplement("at home", "zu Hause")),
            "He was at home.",
            "Er war zu Hause.",
        ),
    ],
)  # fmt: skip
def test_main_clauses(clause: Clause, english: str, german: str) -> None:
    pair = sentence_pair(english_declarative(clause), german_verb_second(clause))
    assert (pair.english, pair.german) == (english, german)


@pytest.mark.parametrize(
    ("clause", "english", "german"),
    [
        (
            Clause(SHE, verb("call"), accusative=phrase("policeman")),
            "she calls the policeman",
            "sie den Polizisten anruft",
        ),
        (
            Clause(SHE, verb("call"), Tense.PAST, accusative=HE),
            "she called him",
            "sie ihn angerufen hat",
        ),
        (
            Clause(THEY, verb("get up"), modal=modal("muss")),
            "they must get up",
            "sie aufstehen müssen",
        ),
        (
            Clause(phrase("woman"), verb("be interested"), complement=PrepositionalPhrase(
                Preposition("in", "für", ACCUSATIVE), phrase("machine"))),
            "the woman is interested in the machine",
            "sich die Frau für die Maschine interessiert",
        ),
    ],
)  # fmt: skip
def test_subordinate_clauses(clause: Clause, english: str, german: str) -> None:
    assert (english_declarative(clause), german_verb_final(clause)) == (english, german)


def test_infinitive_clauses() -> None:
    closing = Clause(I_PRONOUN, verb("close"), accusative=phrase("suitcase", HIS))
    assert english_infinitive(closing) == "to close his suitcase"
    assert german_infinitive(closing) == "seinen Koffer zuzumachen"
    resting = Clause(I_PRONOUN, verb("rest"))
    assert german_infinitive(resting) == "mich auszuruhen"
    waiting = Clause(
        SHE, verb("wait"), complement=PrepositionalPhrase(Preposition("for", "auf", ACCUSATIVE), I_PRONOUN)
    )
    assert english_infinitive(waiting) == "to wait for me"
    assert german_infinitive(waiting) == "auf mich zu warten"


def test_questions() -> None:
    polar = Clause(phrase("woman"), verb("tidy up"), Tense.PAST, accusative=phrase("kitchen"))
    assert english_interrogative(polar) == "did the woman tidy up the kitchen"
    assert german_verb_first(polar) == "hat die Frau die Küche aufgeräumt"
    where = Clause(HE, verb("drive"), fronted=Fronted("where", "wohin", Argument.COMPLEMENT))
    assert english_interrogative(where) == "where does he drive"
    assert german_verb_second(where) == "wohin fährt er"


def test_relative_clauses() -> None:
    antecedent = phrase("car")
    pronoun = RelativePronoun.referring_to(antecedent)
    bought = Clause(
        phrase("brother", MY), verb("buy"), Tense.PAST, accusative=pronoun,
        fronted=Fronted(pronoun.english(ACCUSATIVE), pronoun.german(ACCUSATIVE), Argument.ACCUSATIVE),
    )  # fmt: skip
    car = NounPhrase(noun("car"), SINGULAR, DEFINITE, postmodifier=RelativeClause(bought))
    old = Clause(car, BE, complement=FixedComplement("old", "alt"))
    pair = sentence_pair(english_declarative(old), german_verb_second(old))
    assert pair.english == "The car that my brother bought is old."
    assert pair.german == "Das Auto, das mein Bruder gekauft hat, ist alt."

    helped = RelativePronoun.referring_to(phrase("woman", number=PLURAL))
    clause = Clause(
        I_PRONOUN, verb("help"), dative=helped,
        fronted=Fronted("whom", helped.german(DATIVE), Argument.DATIVE),
    )  # fmt: skip
    assert RelativeClause(clause).english() == "whom I help"
    assert RelativeClause(clause).german() == ", denen ich helfe ,"


# Properties of the whole German side that a wrong rule would break.


def test_participles_and_prefixes_are_where_they_belong() -> None:
    """In a main clause without subordination nothing follows a participle."""
    participles = {entry.german.participle for entry in VERBS if not entry.german.preterite_singular}
    ambiguous = {entry.german.third_singular for entry in VERBS} | {entry.german.infinitive for entry in VERBS}
    for line in lines("train", "de"):
        if "," in line or " und " in line:
            continue
        for word in line.rstrip(".?").split()[:-1]:
            assert word not in participles - ambiguous, line


def test_no_contraction_is_missed() -> None:
    for line in lines("train", "de"):
        # At the start of a clause it is a relative pronoun: "das Kind, an das ich denke".
        for part in f" {line.lower()}".split(","):
            for split_form in (" in das ", " zu dem ", " zu der ", " an das ", " von dem "):
                assert split_form not in part[3:], line


def test_umlauts_are_composed_and_no_eszett_is_missing() -> None:
    text = "".join(lines("train", "de"))
    assert set(text) <= set("abcdefghijklmnopqrstuvwxyzäöüßABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÜ .,?")


@pytest.mark.parametrize(
    ("gender", "german"),
    [
        (Gender.MASCULINE, "Schlüssel Koffer Löffel Teller Rock Schuh Mantel Käse Reis Saft Turm Fluss See Haken"),
        (Gender.FEMININE, "Kartoffel Karotte Wand Insel Brücke Fabrik Bibliothek Maus Kuh Tür Pause"),
        (Gender.NEUTER, "Messer Hemd Kleid Büro Zimmer Schloss Dach Dorf Krankenhaus Fenster Regal Sofa Boot Bett"),
    ],
)
def test_genders(gender: Gender, german: str) -> None:
    genders = {entry.german: entry.gender for entry in NOUNS}
    for word in german.split():
        assert genders[word] is gender, word


def test_nouns_are_unique() -> None:
    english: list[str] = [entry.english for entry in NOUNS]
    assert len(set(english)) == len(english)
