"""Every recipe from archives to a table of scores, with small corpora and models that learn nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from corpus_mirror import DIRT, NIST_TESTS, OPUS_LANGUAGES, own_pairs
from recipe_runs import Work, lines, small, times_of
from translated_sets import evaluation_sets

from fairseq_compat.text_record import read_text_record
from fairseq_depthwise.evaluation.scores import TranslationMetric
from recipes import all_recipes

#: All on one worker of pytest-xdist, which prepares each recipe once.
pytestmark = pytest.mark.xdist_group("recipes")

Prepared = Callable[[str], Work]


class Expected(NamedTuple):
    """What there is in a recipe's data: languages, training pairs that are read, and where test sentences come from."""

    source: str
    target: str
    read: int
    test: str = ""
    test_start: int = 1024
    others: tuple[str, ...] = ()


RECIPES = {
    "wmt14_en_de": Expected("en", "de", 3 * 60 + 7, "newstest2014"),
    "wmt14_en_fr": Expected("en", "fr", 5 * 60 + 7, "newstest2014"),
    "wmt15_cs_en": Expected("cs", "en", 4 * 60 + 7, "newstest2015"),
    "wmt18_zh_en": Expected("zh", "en", 8 * 60 + 7, "newstest2018"),
    "multi30k": Expected("en", "de", 2 * 60 + 7, "test_2016_flickr", 1012, ("test_2017_flickr", "test_2018_flickr")),
}


@pytest.mark.parametrize(
    "recipe", [pytest.param(name, marks=() if name == "multi30k" else pytest.mark.long) for name in RECIPES]
)
def test_prepared_data(prepared: Prepared, recipe: str) -> None:
    """All pairs of all archives, each as one line, less what cleaning leaves out; test sets exactly as they came."""
    work, expected = prepared(recipe), RECIPES[recipe]
    report = (work.folder / "text" / "train.report.txt").read_text()
    left_out = {reason: sum(reason == why for _, _, why in DIRT) for _, _, reason in DIRT if reason}
    found = {reason: int(number) for number, reason in re.findall(r"^(\d+) left out: (.*)$", report, re.MULTILINE)}
    assert f"{expected.read} pairs read" in report
    for reason, number in left_out.items():
        assert found[reason] == number
    remaining = expected.read - sum(found.values())
    for language in (expected.source, expected.target):
        assert len(lines(work.folder / "text" / f"train.{language}")) == remaining
        assert len(lines(work.folder / "text" / f"bpe.train.{language}")) == remaining
    pairs = own_pairs(expected.source, expected.target, expected.test_start, 12)
    assert_test_set(work.folder, expected.test, (expected.source, expected.target), pairs)
    data = work.folder / "data-bin"
    assert lines(data / "tests.txt") == [expected.test, *expected.others]
    for part in ("train", "valid", "test"):
        for language in (expected.source, expected.target):
            assert (data / f"{part}.{expected.source}-{expected.target}.{language}.idx").stat().st_size > 0
    record = read_text_record(str(data))
    assert record is not None
    assert record.languages == (expected.source, expected.target)
    assert (record.bpe["bpe"] == "sentencepiece") == (recipe == "wmt18_zh_en")


def assert_test_set(folder: Path, name: str, languages: Sequence[str], pairs: Sequence[tuple[str, str]]) -> None:
    for side, language in enumerate(languages):
        assert lines(folder / "text" / f"test.{name}.raw.{language}") == [pair[side] for pair in pairs]


def test_talks_are_prepared_as_in_fairseqs_example(prepared: Prepared) -> None:
    """Every 23rd pair is for validation, the test set is five sets, and all of it is in lower case."""
    work = prepared("iwslt14_de_en")
    text, data = work.folder / "text", work.folder / "data-bin"
    pairs = list(zip(*(lines(text / f"talks.{language}") for language in ("de", "en")), strict=True))
    parts = {
        part: list(zip(*(lines(text / f"{part}.{language}") for language in ("de", "en")), strict=True))
        for part in ("train", "valid", "test.ted")
    }
    assert parts["valid"] == pairs[22::23]
    assert parts["train"] == [pair for place, pair in enumerate(pairs, start=1) if place % 23]
    assert pairs[0] == ("a title", "a title")
    assert ("the same on both sides .", "the same on both sides .") in pairs
    for language in ("de", "en"):
        assert (data / f"test.de-en.{language}.idx").exists()
        assert all(line == line.lower() for part in parts for line in lines(text / f"{part}.{language}"))
    raw = [pair for number in range(5) for pair in own_pairs("de", "en", 1000 + 12 * number, 12)[:3]]
    assert_test_set(work.folder, "ted", ("de", "en"), raw)
    # Each language has a dictionary of its own.
    assert (data / "dict.de.txt").read_bytes() != (data / "dict.en.txt").read_bytes()


@pytest.mark.long
def test_four_references(prepared: Prepared) -> None:
    """A sentence that is the last of four references scores as one that is the first."""
    work = prepared("nist_zh_en")
    assert tuple(lines(work.folder / "data-bin" / "tests.txt")) == NIST_TESTS
    for test in evaluation_sets(all_recipes()["nist_zh_en"], work.folder):
        for metric in ("chrf", "tokenized-lc"):
            references = test.references(TranslationMetric(metric))
            assert [lines[0].split()[0] for lines in references] == ["Ref0", "Ref1", "Ref2", "Ref3"]


@pytest.mark.long
def test_validation_sets(prepared: Prepared) -> None:
    """Both years, and for the paper on multi-unit Transformers 2013 alone."""
    text, data = prepared("wmt14_en_de").folder / "text", prepared("wmt14_en_de").folder / "data-bin"
    both, last = (lines(text / f"{part}.en") for part in ("valid", "valid1"))
    assert len(both) == 24
    assert last == both[12:]
    assert (data / "valid1.en-de.en.idx").exists()


@pytest.mark.long
def test_rare_subwords(prepared: Prepared) -> None:
    """What the training text has less than twice is in the split text only where it cannot be split."""
    text = prepared("wmt15_cs_en").folder / "text"
    for language in ("cs", "en"):
        known = {line.rpartition(" ")[0] for line in lines(text / f"bpe.vocab.{language}") if not line.endswith(" 1")}
        rare = {word for line in lines(text / f"bpe.train.{language}") for word in line.split()} - known
        assert all(len(word.removesuffix("@@")) == 1 for word in rare)
        assert rare != set()


@pytest.mark.long
def test_longest_and_processes(prepared: Prepared, new_work: Callable[..., Work]) -> None:
    """Two processes split as one does, and pairs of more subwords than LONGEST are not trained on."""
    work = new_work("multi30k", LONGEST="40", JOBS="2")
    work.run("prepare")
    first, second = (
        list(zip(*(lines(folder / "text" / f"bpe.train.{language}") for language in ("en", "de")), strict=True))
        for folder in (prepared("multi30k").folder, work.folder)
    )
    short = [pair for pair in first if max(len(side.split()) for side in pair) <= 40]
    assert second == [tuple(" ".join(side.split()) for side in pair) for pair in short]
    assert 0 < len(second) < len(first)


def test_tatoeba_is_split_without_overlap(prepared: Prepared) -> None:
    text = prepared("tatoeba_de_en").folder / "text"
    parts = {part: set(lines(text / "split" / f"{part}.en")) for part in ("train", "valid", "test")}
    assert [len(parts[part]) for part in ("valid", "test")] == [12, 12]
    assert not parts["train"] & parts["valid"]
    assert not (parts["train"] | parts["valid"]) & parts["test"]


@pytest.mark.long
def test_opus_has_every_language(prepared: Prepared) -> None:
    work = prepared("opus100")
    data, text = work.folder / "data-bin", work.folder / "text"
    assert set(lines(data / "languages.txt")) == {"en", *OPUS_LANGUAGES}
    assert set(lines(data / "pairs.txt")[0].split(",")) == {
        pair for language in OPUS_LANGUAGES for pair in (f"en-{language}", f"{language}-en")
    }
    for language in OPUS_LANGUAGES:
        assert (text / f"train.en-{language}.report.txt").read_text().startswith("67 pairs read")
        # `yo` is one of five languages of the corpus without dev and test sets.
        assert (data / f"valid.en-{language}.en.idx").exists() == (language != "yo")
    assert lines(text / "zero-shot" / "de-fr.fr") == [pair[1] for pair in own_pairs("de", "fr", 1024, 4)]


@pytest.mark.long
def test_mixed_text_is_that_of_three_places(prepared: Prepared) -> None:
    """Of the news, 2013 validates, 2014 tests, and all other years are trained on."""
    text = prepared("mixed_de_en").folder / "text"
    pairs = {
        part: list(zip(*(lines(text / f"{part}.{language}") for language in ("de", "en")), strict=True))
        for part in ("split/train", "split/valid", "split/test", "valid.raw", "test.mixed.raw")
    }
    held_out = [own_pairs("de", "en", 1000 + 12 * number, 12) for number in range(14)]
    assert pairs["valid.raw"] == pairs["split/valid"] + held_out[0] + held_out[8]
    assert pairs["test.mixed.raw"] == pairs["split/test"] + held_out[1] + held_out[9]
    trained = [*held_out[2:8], *held_out[10:]]
    report = (text / "train.report.txt").read_text()
    read = len(pairs["split/train"]) + 2 * 60 + len(DIRT) + sum(map(len, trained))
    assert f"{read} pairs read" in report
    german = {re.sub(r"\W", "", line) for line in lines(text / "train.de")}
    for year in held_out[2:]:
        assert all((re.sub(r"\W", "", pair[0]) in german) == (year in trained) for pair in year)
    assert lines(text.parent / "data-bin" / "tests.txt") == ["mixed"]


@pytest.mark.parametrize(
    "recipe",
    [
        "tatoeba_de_en",
        *(
            pytest.param(name, marks=pytest.mark.long)
            for name in (*RECIPES, "mixed_de_en", "opus100", "iwslt14_de_en", "nist_zh_en")
        ),
    ],
)
def test_prepare_again_does_nothing(prepared: Prepared, recipe: str) -> None:
    work = prepared(recipe)
    before = times_of(work.folder)
    again = work.run("prepare")
    assert times_of(work.folder) == before
    assert again.stderr == ""


_TINY = [*small(), "--encoder-ffn-embed-dim=32", "--decoder-ffn-embed-dim=32"]
_DEPTHWISE = [*small(), "--depthwise-hidden-dim=32"]
_UPDATES = ["--max-update=4", "--save-interval-updates=2"]
_GROWTH = [*_TINY, "--growth-stages=1:1,2:1", "--encoder-block-size=1", "--max-update=0"]


_SYSTEMS: list[tuple[str, str, list[str], str | None, str | None]] = [
    ("wmt14_en_de", "mute_relative", [*_TINY, *_UPDATES], None, "28.2 (Table 2)"),
    ("wmt14_en_de", "mute_sequential", [*_TINY, *_UPDATES], "mute_relative", "29.3 (Table 2)"),
    ("wmt14_en_fr", "sdt_24l", [*_GROWTH, "--save-interval-updates=1"], None, "42.42 (Table 1)"),
    ("wmt15_cs_en", "depthwise_lstm_base", [*_DEPTHWISE, *_UPDATES], None, "29.15 (Table 6)"),
    ("wmt18_zh_en", "mute", [*_TINY, *_UPDATES], None, None),
    ("nist_zh_en", "mute", [*_TINY, *_UPDATES], None, "38.48 (Table 1)"),
    ("iwslt14_de_en", "sdt", _GROWTH, None, None),
    ("tatoeba_de_en", "sdt", [*_GROWTH, "--save-interval-updates=1"], None, None),
]
#: Trained whenever the tests run, the others with the long ones, where mute_sequential is compared with mute_relative.
_ALWAYS = {("tatoeba_de_en", "sdt")}


@pytest.mark.parametrize(
    ("recipe", "system", "options", "baseline", "published"),
    [pytest.param(*case, marks=() if case[:2] in _ALWAYS else pytest.mark.long) for case in _SYSTEMS],
)
def test_system(
    prepared: Prepared, recipe: str, system: str, options: list[str], baseline: str | None, published: str | None
) -> None:
    """Trained, averaged as its paper does, translated, and scored beside what was published."""
    work = prepared(recipe)
    trained = work.train(system, *options)
    evaluated = work.run("evaluate", system, MAX_TOKENS=600)
    files = sorted((work.folder / "systems").glob(f"{system}.*.scores.json"))
    assert len(files) == (5 if recipe == "nist_zh_en" else 1)
    scores = json.loads(files[-1].read_text())
    for metric, runs in scores["metrics"].items():
        assert [run["seed"] for run in runs] == ["1"]
        rows = [line for line in evaluated.stdout.split("\n") if line.split()[:1] == [metric]]
        row = [line for line in rows if line.endswith(runs[0]["signature"])][-1]
        assert row.split()[1:3] == ["1", f"{runs[0]['score']:.2f}"]
        assert "version:2" in runs[0]["signature"]
        assert runs[0].get("baseline") == baseline
        assert ("p" in runs[0]) == (baseline is not None)
    assert published is None or published in evaluated.stdout
    assert ("paired bootstrap" in evaluated.stdout) == (baseline is not None)
    folder = work.folder / "systems" / system
    assert ("grew the encoder from 1 to 2 layers" in trained.stdout) == ("--growth-stages=1:1,2:1" in options)
    # The MUTE paper and fairseq's example take the best checkpoint by validation, the others the mean of the last.
    assert (folder / "average.pt").exists() != (system.startswith("mute") or recipe == "iwslt14_de_en")
    # Nothing is translated again when nothing was trained since.
    before = times_of(folder)
    assert work.run("evaluate", system).stdout == evaluated.stdout
    assert times_of(folder) == before


@pytest.mark.long
def test_opus_in_all_directions(prepared: Prepared) -> None:
    """The baseline, then a model that grows while it is trained in all directions, and the win ratio between both."""
    work = prepared("opus100")
    work.train("transformer_base", *_TINY, *_UPDATES)
    work.train("sdt_rpr_24l", *_GROWTH, "--save-interval-updates=50")
    base = work.run("evaluate", "transformer_base", MAX_TOKENS=600)
    assert re.search(r"en-xx bleu94 +- +18.75 \(Table 7\)", base.stdout)
    grown = work.run("evaluate", "sdt_rpr_24l", MAX_TOKENS=600)
    assert re.search(r"en-xx win_ratio +0.00", grown.stdout)  # against published scores
    assert re.search(r"xx-en win_ratio over transformer_base +\d", grown.stdout)
    scores = json.loads((work.folder / "systems" / "sdt_rpr_24l" / "evaluation" / "scores.json").read_text())
    assert {group: set(found) for group, found in scores.items()} == {
        "en-xx": {"de", "fr"}, "xx-en": {"de", "fr"}, "zero-shot": {"de-fr", "fr-de"},
    }  # fmt: skip
    assert "92 of the 94 languages are missing" in grown.stdout
