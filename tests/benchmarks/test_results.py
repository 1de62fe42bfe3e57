"""``benchmarks/results.py`` as a program, with tiny models on a few sentences, and its commands."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from results import ANALYSIS, OUTPUTS, PARTS, commands_of, parse_options

from fairseq_depthwise.cli import build_parser

RunBenchmark = Callable[..., subprocess.CompletedProcess[str]]

TINY = [
    "--part", "comparison", "--merges=60", "--heads=2", "--layers=1", "--width=16", "--updates=30",
    "--warm-up=20", "--max-tokens=200",
]  # fmt: skip


@pytest.fixture(scope="module")
def run_results(run_benchmark: RunBenchmark) -> RunBenchmark:
    """``run_results(corpus, work, *options)``"""

    def run(corpus: Path, work: Path, *options: str) -> subprocess.CompletedProcess[str]:
        given = (f"--corpus={corpus}", f"--work={work}", f"--records={work.parent}")
        return run_benchmark("results.py", *given, *options)

    return run


@pytest.fixture(scope="module")
def work(run_results: RunBenchmark, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The work folder of a whole run."""
    folder = tmp_path_factory.mktemp("results") / "work"
    done = run_results(corpus, folder, *TINY)
    assert done.returncode == 0, done.stderr
    assert "| `lstm` |" in done.stdout
    return folder


@pytest.mark.long
def test_every_model_is_trained_and_scored(work: Path) -> None:
    record = json.loads((work.parent / "results_comparison.json").read_text(encoding="utf-8"))
    assert list(record["runs"]) == ["stock", "lstm", "stock-dropout", "lstm-dropout"]
    assert all(list(run["valid"]) == ["7", "14", "21", "28", "30"] for run in record["runs"].values())
    for metric in ("sacrebleu", "chrf"):
        assert all(0 <= system["mean"] <= 100 for system in record["scores"][metric]["systems"])
    assert (record["text"]["train"], record["text"]["valid"], record["text"]["test"]) == (100, 9, 10)


@pytest.mark.long
def test_the_record_names_no_folder_of_this_machine(work: Path) -> None:
    text = (work.parent / "results_comparison.json").read_text(encoding="utf-8")
    assert str(work.parent) not in text
    assert "$CORPORA\\\"/'made up'/train.en > train.en" in text


@pytest.mark.long
def test_finished_results_are_not_repeated(run_results: RunBenchmark, corpus: Path, work: Path) -> None:
    path = work.parent / "results_comparison.json"
    before = path.read_text(encoding="utf-8")
    path.unlink()
    done = run_results(corpus, work, *TINY)
    assert done.returncode == 0, done.stderr
    assert "$ " not in done.stderr
    assert path.read_text(encoding="utf-8") == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--updates=31", "--part=comparison"], "updates 30, not 31"),
        (["--corpus=missing"], "--corpus missing"),
        (["--source=fr"], "--source fr"),
    ],
)
def test_bad_input_is_named_in_one_sentence(
    run_results: RunBenchmark, corpus: Path, work: Path, options: list[str], words: str
) -> None:
    done = run_results(corpus, work, *TINY, *options)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert words in done.stderr


@pytest.mark.parametrize(
    ("option", "value"),
    [("--updates", "3"), ("--heads", "0"), ("--learning-rate", "-1"), ("--part", "growth")],
)
def test_bad_option_is_named_with_its_value(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_options(["--corpus=text", f"{option}={value}"])
    last = capsys.readouterr().err.splitlines()[-1]
    assert option in last
    assert value.split(",")[-1] in last


@pytest.mark.parametrize("name", PARTS)
def test_trainings_of_a_part_differ_in_what_their_program_says_only(name: str) -> None:
    commands = commands_of(name, parse_options(["--corpus=text", "--layers=4"]))
    same = {"criterion", "lr", "dropout", "max-tokens", "max-update", "seed", "warmup-updates"}
    found = {option: set() for option in same}
    for run, command in commands.items():
        for option in command.split(" --"):
            if (key := option.split()[0]) in same and f"--{key} " not in f"{PARTS[name].runs[run]} ":
                found[key].add(option)
    assert all(len(values) == 1 for values in found.values())
    for run, command in commands.items():
        words = shlex.split(command)
        assert words[words.index("--save-dir") + 1] == run
        assert words.count("--encoder-layers") == (0 if "--growth-stages" in words else 1)


def test_every_command_of_the_analysis_is_understood() -> None:
    parser = build_parser()
    for output, command in OUTPUTS.items():
        words = shlex.split(command.format(target="de"))
        assert words[0] == "fairseq-depthwise"
        if words[1] == "generate":  # fairseq's own parser
            assert output.removesuffix(".generated") in PARTS[ANALYSIS].runs
        else:
            assert parser.parse_args(words[1:]).run.__module__.endswith(words[1])
