"""``fairseq-depthwise compare``: tests and seeds on one test set, and one number from many languages."""

from __future__ import annotations

import json
import os
import random
import re
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
import sacrebleu

from fairseq_depthwise import cli
from fairseq_depthwise.evaluation import languages

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


def write(path: Path, lines: list[str]) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all of them, which is the current one."""
    monkeypatch.chdir(tmp_path)
    for name, lines in {**SYSTEMS, "ref": REFERENCE}.items():
        write(tmp_path / name, lines)
    return tmp_path


def compare(*arguments: object) -> int:
    return cli.main(["compare", *map(str, arguments)])


def compare_json(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    assert compare(*arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def cells(table: str) -> list[list[str]]:
    return [re.split(r" {2,}", line.strip()) for line in table.splitlines()]


# --- one test set ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("files")
def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare("--ref", "ref", "--samples", 99, "base1", "base2", "deep1") == 0
    captured = capsys.readouterr()
    table, notes = captured.out.split("\n\n")
    header, base, alike, deep = cells(table)
    assert header == ["system", "BLEU", "difference", "p"]
    assert base == ["base1", f"{SCORES['base1']:.2f}"]
    assert alike[:3] == ["base2", f"{SCORES['base2']:.2f}", f"{SCORES['base2'] - SCORES['base1']:+.2f}"]
    assert float(alike[3]) > 0.05
    assert deep == ["deep1", f"{SCORES['deep1']:.2f}", f"{SCORES['deep1'] - SCORES['base1']:+.2f}", "0.0100"]
    assert notes == (
        f"BLEU: nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}\n"
        "p: paired bootstrap, 99 samples, seed 12345, against base1\n"
    )


@pytest.mark.usefixtures("files")
def test_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--ref", "ref", "--samples", 99]
    found = compare_json(capsys, *options, "base1,base2", "deep1,deep2", "deep2")
    pairs = [compare_json(capsys, *options, f"base{n}", f"deep{n}")["systems"][1] for n in (1, 2)]
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
        "p_values": [pytest.approx(0.01), pytest.approx(0.01)],
        "why_untested": None,
    }
    assert deep["p_values"] == [pair["p_values"][0] for pair in pairs]
    assert base.keys() == deep.keys() - {"difference", "p_values", "why_untested"}
    assert (single["standard_deviation"], single["p_values"]) == (None, [])
    assert single["why_untested"] == "no paired test of deep2: numbers of files differ, 1 and 2"
    assert (found["metric"], found["references"], found["sentences"]) == ("sacrebleu", ["ref"], 40)
    assert (found["test"], found["samples"], found["seed"]) == ("bootstrap", 99, 12345)


@pytest.mark.usefixtures("files")
def test_table_with_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare("--ref", "ref", "--samples", 99, "base1,base2", "deep1,deep2", "deep2") == 0
    table, notes = capsys.readouterr().out.split("\n\n")
    header, _, deep, single = cells(table)
    assert header == ["system", "BLEU", "files", "st. dev.", "lowest", "highest", "difference", "p"]
    both = [SCORES["deep1"], SCORES["deep2"]]
    assert deep[:4] == ["deep1,deep2", f"{fmean(both):.2f}", "2", f"{stdev(both):.2f}"]
    assert deep[4:6] == [f"{min(both):.2f}", f"{max(both):.2f}"]
    assert deep[-1] == "0.0100, 0.0100"
    assert (single[2:4], single[-1]) == (["1", "-"], "-")
    assert notes.splitlines()[-1] == "no paired test of deep2: numbers of files differ, 1 and 2"


@pytest.mark.usefixtures("files")
def test_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare("--ref", "ref", "--samples", 9, "--markdown", "base1", "deep1") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["| system | BLEU | difference | p |", "| --- | --- | --- | --- |"]
    assert lines[3].startswith(f"| deep1 | {SCORES['deep1']:.2f} | +")


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(("test", "samples"), [("bootstrap", 1000), ("approximate-randomisation", 10000)])
def test_tests_and_their_samples(
    test: str, samples: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from fairseq_depthwise.commands import compare as command

    asked = []
    monkeypatch.setattr(command, "paired_test", lambda *_, **options: asked.append(options) or 0.5)
    compare_json(capsys, "--ref", "ref", "--test", test, "base1", "deep1")
    compare_json(capsys, "--ref", "ref", "--test", test, "--samples", 7, "--seed", 3, "base1", "deep1")
    assert asked == [
        {"test": test, "samples": samples, "seed": 12345},
        {"test": test, "samples": 7, "seed": 3},
    ]


@pytest.mark.usefixtures("files")
def test_the_metric_is_that_of_the_test(capsys: pytest.CaptureFixture[str]) -> None:
    """Systems that differ in case alone do not differ for the metric without case."""
    write(Path("upper"), [line.upper() for line in SYSTEMS["base1"]])
    options = ["--ref", "ref", "--samples", 19, "base1", "upper"]
    without = compare_json(capsys, "--metric", "tokenized-lc", *options)["systems"][1]
    with_case = compare_json(capsys, "--metric", "tokenized", *options)["systems"][1]
    assert (without["difference"], without["p_values"]) == (0, [1])
    assert with_case["mean"] == 0
    assert with_case["p_values"] == [pytest.approx(0.05)]


@pytest.mark.usefixtures("files")
def test_a_file_with_a_comma_in_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    write(Path("a,b"), SYSTEMS["deep1"])
    found = compare_json(capsys, "--ref", "ref", "--samples", 9, "base1", "a,b")
    assert found["systems"][1]["files"] == ["a,b"]


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["base1", "deep1"], "--ref is missing; give the reference that all systems are scored against"),
        (["--ref", "ref", "base1", "none"], "none does not exist"),
        (["--ref", "ref", "base1", "deep1,"], "deep1, names an empty file; give files with one comma between them"),
        (["--ref", "ref", "base1", "deep1,short"], "short has 2 sentences and the reference ref 40; give the whole"),
        (["--ref", "ref", "base1,-", "-"], "stdin (-) is given 2 times; it can be read once"),
        (["--ref", "ref", "--metric", "chrf", "--tokenize", "zh", "base1", "deep1"], "--tokenize zh is for --metric"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    write(Path("short"), ["a", "b"])
    assert compare(*arguments) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"fairseq-depthwise: error: {said}")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    "given",
    [[], ["base"], ["--seed", "0", "a", "b"], ["--samples", "0", "a", "b"], ["--test", "t", "a", "b"]],
)
def test_wrong_options(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        compare(*given)
    assert ended.value.code == 2
    assert capsys.readouterr().out == ""


# --- many languages --------------------------------------------------------------------------------------------------

DEFAULT = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"


def score_files(folder: Path, signature: str = DEFAULT, metric: str = "sacrebleu", **scores: float) -> str:
    for language, value in scores.items():
        write(folder / f"{language}.json", [json.dumps({"score": value, "metric": metric, "signature": signature})])
    return folder.name


@pytest.mark.usefixtures("files")
def test_opus100_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    """BLEU94 is 46.5 of 0 to 93; the system has one more in 47 languages, and one less in 3."""
    base = {language: float(number) for number, language in enumerate(languages.TESTED)}
    changes = dict(zip(languages.TESTED, [1] * 47 + [-1] * 3 + [0] * 44, strict=True))
    score_files(Path("base"), **base)
    score_files(Path("deep"), **{language: base[language] + changes[language] for language in base})
    found = compare_json(capsys, "--languages", "base", "deep")
    first, second = found["systems"]
    four = fmean(base[language] for language in ("de", "zh", "br", "te"))
    assert (first["bleu94"], first["mean"], first["win_ratio"]) == (pytest.approx(46.5), pytest.approx(46.5), None)
    assert first["bleu4"] == pytest.approx(four)
    assert second["bleu94"] == pytest.approx(46.5 + 44 / 94)
    assert second["bleu4"] == pytest.approx(four + fmean(changes[language] for language in ("de", "zh", "br", "te")))
    assert second["win_ratio"] == pytest.approx(50)
    assert found["missing"] == {"bleu94": None, "bleu4": None}
    assert found["languages"] == 94
    assert second["scores"]["af"] == 1
    assert compare("--languages", "base", "deep") == 0
    table = cells(capsys.readouterr().out)
    assert len(table) == 1 + 94 + 4
    assert table[-3] == ["BLEU94", "46.50", "46.97"]
    assert table[-1] == ["WR, %", "-", "50.0"]


@pytest.mark.usefixtures("files")
def test_some_languages(capsys: pytest.CaptureFixture[str]) -> None:
    score_files(Path("base"), de=20, fr=31)
    score_files(Path("deep"), de=22, fr=30)
    assert compare("--languages", "base", "deep", "deep", "--markdown") == 0
    assert capsys.readouterr().out == (
        "| language | base | deep | deep |\n| --- | --- | --- | --- |\n"
        "| de | 20.00 | 22.00 | 22.00 |\n| fr | 31.00 | 30.00 | 30.00 |\n| mean over 2 | 25.50 | 26.00 | 26.00 |\n"
        "| BLEU94 | - | - | - |\n| BLEU4 | - | - | - |\n| WR, % | - | 50.0 | 50.0 |\n\n"
        "no BLEU94: 92 of the 94 languages are missing: af, am, ar, as, az, be, bg, bn, br, bs ...\n"
        "no BLEU4: zh, br, te missing\n"
    )


@pytest.mark.usefixtures("files")
def test_translations_are_scored(capsys: pytest.CaptureFixture[str]) -> None:
    """Plain text, fairseq's output, and what ``score`` had printed before."""
    for language in ("de", "fr"):
        write(Path(f"refs/{language}.ref"), REFERENCE)
        write(Path(f"base/{language}.hyp"), SYSTEMS["base1"])
    write(Path("deep/fr.txt"), [f"D-{number}\t-0.5\t{line}" for number, line in enumerate(SYSTEMS["deep1"])][::-1])
    assert cli.main(["score", "--ref", "ref", "deep2", "--json"]) == 0
    Path("deep/de.json").write_text(capsys.readouterr().out)
    assert compare("--languages", "--ref", "refs", "base", "deep", "--json") == 0
    base, deep = json.loads(capsys.readouterr().out)["systems"]
    assert base["scores"] == {"de": SCORES["base1"], "fr": SCORES["base1"]}
    assert deep["scores"] == {"de": SCORES["deep2"], "fr": SCORES["deep1"]}
    assert (deep["win_ratio"], deep["bleu94"]) == (100, None)


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["base", "less"], "less has no result for fr, which base has"),
        (["less", "base"], "less has no result for fr, which base has"),
        (
            ["base", "other"],
            f"de is scored with tok:zh in other and with {DEFAULT} in base; score both in the same way",
        ),
        (["base", "none"], "none is not a folder; with --languages give folders of files named LANG.hyp"),
        (["base", "empty"], "empty has no file named LANG and one of .hyp, .txt, .json"),
        (["base", "broken"], "broken/de.json is not what `fairseq-depthwise score --json` prints for one file"),
        (["base", "text"], "--ref is missing; text has translations, which need one folder of references"),
        (["--ref", "a", "--ref", "b", "base", "text"], "--ref is given 2 times; text has translations, which need one"),
        (["--ref", "refs", "base", "text"], "--ref refs has no reference for fr, which text translates"),
        (["--metric", "chrf", "base", "base"], "--metric is chrf, and base/de.json has a score of sacrebleu"),
        (["--seed", "3", "base", "base"], "--seed 3 is for the tests of one test set; --languages makes none"),
    ],
)
def test_bad_folders_are_one_sentence(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    score_files(Path("base"), de=20, fr=31)
    score_files(Path("less"), de=20)
    score_files(Path("other"), "tok:zh", de=20, fr=31)
    write(Path("broken/de.json"), ["{"])
    os.mkdir("empty")
    for language in ("de", "fr"):
        write(Path(f"text/{language}.hyp"), ["a"])
    write(Path("refs/de.ref"), ["a"])
    assert compare("--languages", *arguments) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1].startswith(f"fairseq-depthwise: error: {said}")
