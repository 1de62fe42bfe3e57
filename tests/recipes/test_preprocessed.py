"""``PREPROCESSED``: from the folder of another's tokens to a table of scores, and what is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import preprocessed_text
import pytest
from recipe_runs import Work, lines, small
from translated_sets import evaluation_sets

from fairseq_depthwise.evaluation.scores import TranslationMetric, detokenize, join_compounds
from recipes import all_recipes

pytestmark = [pytest.mark.xdist_group("recipes"), pytest.mark.long]

RECIPE, TEST = "wmt14_en_de", "newstest2014"


@pytest.fixture(
    scope="module", params=[pytest.param(False, marks=pytest.mark.long), True], ids=["hyphens", "split-hyphens"]
)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of preprocessed text, without and with split compounds."""
    return preprocessed_text.build(tmp_path_factory.mktemp("text") / "wmt16_en_de", split_hyphens=request.param)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as it is published."""
    return preprocessed_text.build(tmp_path_factory.mktemp("text") / "wmt16_en_de")


@pytest.fixture(scope="module")
def prepared_from(new_work: Callable[..., Work], folder: Path) -> Work:
    """The recipe prepared from it, where nothing can be fetched."""
    work = new_work(RECIPE, MIRROR="/none", PREPROCESSED=str(folder))
    work.run("prepare")
    return work


def test_data_are_those_of_fairseqs_example(prepared_from: Work, folder: Path, tmp_path: Path) -> None:
    """The commands of examples/scaling_nmt give the same dictionaries, training and test data."""
    command = [
        *(sys.executable, "-m", "fairseq_cli.preprocess", "--source-lang", "en", "--target-lang", "de"),
        *("--trainpref", folder / "train.tok.clean.bpe.32000", "--validpref", folder / "newstest2013.tok.bpe.32000"),
        *("--testpref", folder / f"{TEST}.tok.bpe.32000", "--destdir", tmp_path / "example"),
        *("--nwordssrc", "32768", "--nwordstgt", "32768", "--joined-dictionary"),
    ]
    subprocess.run(list(map(str, command)), check=True, capture_output=True, timeout=120)
    data = prepared_from.folder / "data-bin"
    # Their validation set is the second of ours.
    names = {"dict.en.txt": "dict.en.txt", "dict.de.txt": "dict.de.txt"}
    for language in ("en", "de"):
        for part, ours in (("train", "train"), ("test", "test"), ("valid", "valid1")):
            names[f"{part}.en-de.{language}.bin"] = f"{ours}.en-de.{language}.bin"
    for theirs, ours in names.items():
        assert (tmp_path / "example" / theirs).read_bytes() == (data / ours).read_bytes(), ours
    assert (data / "dict.en.txt").read_bytes() == (data / "dict.de.txt").read_bytes()
    assert (data / "bpe.codes").read_bytes() == (folder / "bpe.32000").read_bytes()
    assert lines(data / "tests.txt") == [TEST]
    both = [line for year in (2012, 2013) for line in lines(folder / f"newstest{year}.tok.bpe.32000.de")]
    assert lines(prepared_from.folder / "text" / "bpe.valid.de") == both
    assert not (prepared_from.folder / "downloads").exists()


def test_trained_and_evaluated(prepared_from: Work, folder: Path) -> None:
    """A system gets every score of its papers; its checkpoint splits raw text as the folder's text was split."""
    work, system = prepared_from, "mute_relative"
    options = [*small(), "--encoder-ffn-embed-dim=32", "--decoder-ffn-embed-dim=32"]
    work.train(system, *options, "--max-update=4", "--save-interval-updates=2")
    evaluated = work.run("evaluate", system, MAX_TOKENS=600)
    scores = json.loads((work.folder / "systems" / f"{system}.{TEST}.scores.json").read_text())
    assert set(scores["metrics"]) == {"tokenized", "compound-split", "sacrebleu"}
    assert "28.2 (Table 2)" in evaluated.stdout
    run = work.folder / "systems" / system
    raw = folder / f"{TEST}.en"
    translated = subprocess.run(
        [
            *(sys.executable, "-m", "fairseq_depthwise", "translate", run / "checkpoints" / "checkpoint_best.pt"),
            *("--json", "--print-alignment", "--cpu", "--max-len-b", "5"),
        ],
        stdin=raw.open(), capture_output=True, text=True, check=True, timeout=120,
    ).stdout  # fmt: skip
    words = [json.loads(line)["source_words"] for line in translated.split("\n")[:-1]]
    expected = [join_compounds(line).split() for line in lines(folder / f"{TEST}.tok.en")]
    assert words == expected


def test_references_are_in_the_form_of_translations(prepared_from: Work, folder: Path) -> None:
    """The test set's own target side, as a system would produce it, has the best score there is."""
    subwords = lines(folder / f"{TEST}.tok.bpe.32000.de")
    tokens = [join_compounds(f"{line} ".replace("@@ ", "").rstrip()) for line in subwords]
    (test,) = [test for test in evaluation_sets(all_recipes()[RECIPE], prepared_from.folder) if test.name == TEST]
    for name in ("tokenized", "compound-split"):
        metric = TranslationMetric(name)
        references = test.references(metric)
        assert metric.score(tokens, references).score == pytest.approx(100)
    metric = TranslationMetric("sacrebleu")
    references = test.references(metric)
    assert references == [lines(folder / f"{TEST}.de")]
    assert metric.score(detokenize(tokens, "de"), references).score == pytest.approx(100)


def test_prepared_again(prepared_from: Work, new_work: Callable[..., Work]) -> None:
    """The folder is part of the settings, in both directions, and the same folder does nothing."""
    assert prepared_from.run("prepare").stderr == ""
    refused = prepared_from.run("prepare", status=1, PREPROCESSED="").stderr
    assert f"WORK={prepared_from.folder} was prepared with" in refused
    assert prepared_from.environment["PREPROCESSED"] in refused
    other = new_work(RECIPE)
    (other.folder / "text").mkdir(parents=True)
    (other.folder / "text" / "settings").write_text("RECIPE=wmt14_en_de\nSOURCE=en\nTARGET=de\nMERGES=150\n")
    assert "MERGES=150" in other.run("prepare", status=1, **prepared_from.environment).stderr


@pytest.mark.parametrize(
    "name",
    [
        "train.tok.clean.bpe.32000.de",
        "newstest2012.tok.bpe.32000.en",
        "newstest2013.tok.bpe.32000.de",
        "newstest2014.tok.de",
        "newstest2014.de",
        "bpe.32000",
    ],
)
def test_a_missing_file(new_work: Callable[..., Work], plain: Path, tmp_path: Path, name: str) -> None:
    damaged = shutil.copytree(plain, tmp_path / "damaged")
    (damaged / name).unlink()
    message = new_work(RECIPE).run("prepare", status=1, PREPROCESSED=damaged).stderr
    assert f"PREPROCESSED={damaged} has no {name}" in message


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("train.tok.clean.bpe.32000.de", "192 lines"),
        ("newstest2012.tok.bpe.32000.en", "12 lines"),
        ("newstest2014.tok.de", "(12)"),
        ("newstest2014.de", "(12)"),
    ],
)
def test_lines_that_are_no_pairs(
    new_work: Callable[..., Work], plain: Path, tmp_path: Path, name: str, said: str
) -> None:
    """One line too many is refused, and when the file is right again, the same command goes on."""
    damaged = shutil.copytree(plain, tmp_path / "damaged")
    with (damaged / name).open("a", encoding="utf-8") as file:
        file.write("one more\n")
    work = new_work(RECIPE, PREPROCESSED=str(damaged))
    message = work.run("prepare", status=1).stderr
    assert name in message
    assert said in message
    shutil.copy(plain / name, damaged / name)
    work.run("prepare")
    assert len(lines(work.folder / "text" / "bpe.train.en")) == 192


def test_what_it_cannot_be(new_work: Callable[..., Work], plain: Path) -> None:
    no_folder = new_work(RECIPE).run("prepare", status=1, PREPROCESSED="/none").stderr
    assert "PREPROCESSED=/none is not a folder" in no_folder
    other_recipe = new_work("multi30k").run("prepare", status=1, PREPROCESSED=plain).stderr
    assert f"PREPROCESSED={plain} is for the recipe wmt14_en_de only" in other_recipe


def test_back_translation_tokenizes_alike(prepared_from: Work, folder: Path, tmp_path: Path) -> None:
    """Synthetic pairs are split into subwords as the folder's text was."""
    work = prepared_from
    reverse = ["--source-lang=de", "--target-lang=en", *small(), "--max-update=2", "--save-interval-updates=2"]
    work.train("transformer_base", *reverse, RUN="reverse")
    model = work.folder / "systems" / "reverse" / "checkpoints" / "checkpoint_last.pt"
    given = [model, folder / "newstest2012.de", "--", "--cpu", "--max-len-b", "12", "--data", work.folder / "data-bin"]
    mixed = tmp_path / "mixed"
    work.run("back_translate", *given, LONGEST=200, RATIO=99, COPIED=1, MIXED=mixed, BEAM=1, PREPROCESSED="")
    tokens = [join_compounds(line) for line in lines(folder / "newstest2012.tok.de")]
    assert set(lines(mixed / "text" / "synthetic.de")) <= set(tokens)
    assert (mixed / "data-bin" / "text_options.txt").exists()
