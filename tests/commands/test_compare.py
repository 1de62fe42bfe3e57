"""``fairseq-depthwise compare``: tests and seeds on one test set, and one number from many languages."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
import sacrebleu

from fairseq_depthwise.evaluation import languages

pytestmark = pytest.mark.usefixtures("files")

WORDS = [f"w{number}" for number in range(30)]


def sentences(errors: float, seed: int) -> list[str]:
    """Forty sentences, and a share of their words wrong."""
    chance, noise = random.Random(0), random.Random(seed)
    right = [[chance.choice(WORDS) for _ in range(10)] for _ in range(40)]
    return [" ".join(w if noise.random() >= errors else noise.choice(WORDS) for w in line) for line in right]


REFERENCE = sentences(0, 0)
SYSTEMS = {
    name: sentences(errors, seed)
    for name, errors, seed in (("base1", 0.3, 1), ("base2", 0.3, 2), ("deep1", 0.05, 3), ("deep2", 0.05, 4))
}
SCORES = {name: sacrebleu.corpus_bleu(lines, [REFERENCE]).score for name, lines in SYSTEMS.items()}
COMMAND = ("compare", "--ref", "ref", "--samples", 99)


def write(path: str, lines: list[str]) -> None:
    Path(path).parent.mkdir(exist_ok=True)
    Path(path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder has all of them."""
    monkeypatch.chdir(tmp_path)
    for name, lines in {**SYSTEMS, "ref": REFERENCE}.items():
        write(name, lines)


def cells(table: str) -> list[list[str]]:
    return [re.split(r" {2,}", line.strip()) for line in table.splitlines()]


# --- one test set ----------------------------------------------------------------------------------------------------


def test_seeds(printed: Callable[..., str], document: Callable[..., Any]) -> None:
    found = document(*COMMAND, "base1,base2", "deep1,deep2", "deep2")
    pairs = [document(*COMMAND, f"base{n}", f"deep{n}")["systems"][1] for n in (1, 2)]
    base, deep, single = found["systems"]
    scores = [SCORES["deep1"], SCORES["deep2"]]
    difference = fmean(scores) - fmean([SCORES["base1"], SCORES["base2"]])
    assert deep == {
        "name": "deep1,deep2",
        "files": ["deep1", "deep2"],
        "scores": scores,
        "mean": pytest.approx(fmean(scores)),
        "standard_deviation": pytest.approx(stdev(scores)),
        "lowest": min(scores),
        "highest": max(scores),
        "difference": pytest.approx(difference),
        "interval": deep["interval"],
        "p_values": [pytest.approx(0.01), pytest.approx(0.01)],
        "why_untested": None,
    }
    low, high = deep["interval"]
    assert low < difference < high
    assert deep["p_values"] == [pair["p_values"][0] for pair in pairs]
    assert base.keys() == deep.keys() - {"difference", "interval", "p_values", "why_untested"}
    assert (single["standard_deviation"], single["interval"], single["p_values"]) == (None, None, [])
    assert "numbers of files differ, 1 and 2" in single["why_untested"]
    assert (found["metric"], found["references"], found["sentences"]) == ("sacrebleu", ["ref"], 40)
    assert (found["test"], found["samples"], found["seed"]) == ("bootstrap", 99, 12345)

    table, notes = printed(*COMMAND, "base1,base2", "deep1,deep2", "deep2").split("\n\n")
    numbers = [fmean(scores), stdev(scores), min(scores), max(scores)]
    mean, *spread = (f"{number:.2f}" for number in numbers)
    assert cells(table)[2] == [
        "deep1,deep2",
        mean,
        "2",
        *spread,
        f"{difference:+.2f}",
        f"{low:+.2f} to {high:+.2f}",
        "0.0100, 0.0100",
    ]
    assert notes.splitlines()[-1] == single["why_untested"]


def test_a_file_is_no_two_seeds(refusal: Callable[..., str]) -> None:
    assert "base1,./base1" in refusal(*COMMAND, "base1,./base1", "deep1,deep2")


# --- many languages --------------------------------------------------------------------------------------------------

DEFAULT = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"


def score_files(folder: str, signature: str = DEFAULT, **scores: float) -> None:
    for language, value in scores.items():
        result = {"score": value, "metric": "sacrebleu", "signature": signature}
        write(f"{folder}/{language}.json", [json.dumps(result)])


def test_opus100_by_hand(printed: Callable[..., str], document: Callable[..., Any]) -> None:
    """BLEU94 is 46.5 of 0 to 93; the system has one more in 47 languages, and one less in 3."""
    base = {language: float(number) for number, language in enumerate(languages.TESTED)}
    changes = dict(zip(languages.TESTED, [1] * 47 + [-1] * 3 + [0] * 44, strict=True))
    score_files("base", **base)
    score_files("deep", **{language: base[language] + changes[language] for language in base})
    found = document("compare", "--languages", "base", "deep")
    first, second = found["systems"]
    four = [fmean(values[language] for language in ("de", "zh", "br", "te")) for values in (base, changes)]
    assert (first["bleu94"], first["mean"], first["win_ratio"]) == (pytest.approx(46.5), pytest.approx(46.5), None)
    assert first["bleu4"] == pytest.approx(four[0])
    assert second["bleu94"] == pytest.approx(46.5 + 44 / 94)
    assert second["bleu4"] == pytest.approx(sum(four))
    assert second["win_ratio"] == pytest.approx(50)
    assert (found["missing"], found["languages"]) == ({"bleu94": None, "bleu4": None}, 94)
    assert second["scores"]["af"] == 1
    table = cells(printed("compare", "--languages", "base", "deep"))
    assert len(table) == 1 + 94 + 4
    assert table[-3] == ["BLEU94", "46.50", "46.97"]
    assert table[-1] == ["WR, %", "-", "50.0"]


def test_other_metrics_are_not_called_bleu94(document: Callable[..., Any]) -> None:
    score_files("base", **dict.fromkeys(languages.TESTED, 1.0))
    score_files("base", DEFAULT.replace("13a", "intl"), te=1.0)
    found = document("compare", "--languages", "base", "base")
    assert all("tok:intl" in found["missing"][name] for name in ("bleu94", "bleu4"))
    assert [found["systems"][0][name] for name in ("mean", "bleu94", "bleu4")] == [1, None, None]


def test_translations_are_scored(printed: Callable[..., str], document: Callable[..., Any]) -> None:
    """Plain text, fairseq's output, and what ``score`` had printed before."""
    for language in ("de", "fr"):
        write(f"refs/{language}.ref", REFERENCE)
        write(f"base/{language}.hyp", SYSTEMS["base1"])
    write("deep/fr.txt", [f"D-{number}\t-0.5\t{line}" for number, line in enumerate(SYSTEMS["deep1"])][::-1])
    Path("deep/de.json").write_text(printed("score", "--ref", "ref", "deep2", "--json"))
    base, deep = document("compare", "--languages", "--ref", "refs", "base", "deep")["systems"]
    assert base["scores"] == {"de": SCORES["base1"], "fr": SCORES["base1"]}
    assert deep["scores"] == {"de": SCORES["deep2"], "fr": SCORES["deep1"]}
    assert (deep["win_ratio"], deep["bleu94"]) == (100, None)


@pytest.mark.parametrize("score", [math.nan, math.inf])
def test_a_score_that_is_no_number(score: float, refusal: Callable[..., str]) -> None:
    score_files("base", de=1.0)
    score_files("deep", de=score)
    assert "deep/de.json" in refusal("compare", "--languages", "base", "deep")
