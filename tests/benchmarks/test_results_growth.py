"""Part "growth" of ``benchmarks/results.py``: its commands, what it reads from logs, and its section of the page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from results import PARTS, parse_options  # found by the line above
from results_growth import GROWTH, NAMES, RUNS, measure_steps, trainings
from results_page import page

STAGES = "2:100u,4:100u,6:200u"


def run_of(losses: list[float], parameters: int) -> dict[str, Any]:
    valid = {str(100 * number): {"loss": loss, "nll_loss": loss - 1} for number, loss in enumerate(losses, start=1)}
    return {"parameters": parameters, "seconds": 432.1, "valid": valid}


@pytest.fixture
def numbers() -> dict[str, Any]:
    """What a part's file holds, after four runs of 400 updates."""
    grown = run_of([8.0, 7.5, 6.5, 5.25], 1000)
    systems = {
        name: {metric: {"score": "9.9", "interval": "9.9 ± 0.9", "p": ""} for metric in ("BLEU", "chrF2")}
        for name in RUNS
    }
    return {
        "settings": {
            "corpus": "text", "languages": "en -> de", "merges": 60, "threads": 1, "layers": 3, "width": 16, "heads": 2,
            "growth_stages": STAGES, "warm_up": 100, "max_tokens": 200, "learning_rate": 0.001, "seed": 1,
        },
        "text": {"train": 9, "valid": 9, "test": 9, "dictionary": 99},
        "about": {"machine": "a machine", "versions": "versions"},
        "prepared": ["cat"],
        "commands": ["train"],
        "made_by": "python benchmarks/results.py",
        "runs": {"from-start": run_of([7.0, 6.0, 5.5, 5.0], 1234)}
        | {name: grown for name in RUNS if name != "from-start"},
        "steps": {"2": [0.25, 0.2, 0.3], "4": [0.4, 0.9, 0.3], "6": [0.5, 0.5, 4.0]},
        "scores": {"systems": systems, "signatures": {"BLEU": "signature"}},
    }  # fmt: skip


def test_trainings_differ_only_in_how_depth_is_reached() -> None:
    commands = trainings(parse_options(["--corpus=text", f"--growth-stages={STAGES}", "--layers=5"]))
    assert "--arch sdt_transformer" in commands["from-start"]
    assert "--encoder-layers 6 --decoder-layers 5" in commands["from-start"]
    assert "--max-update 400" in commands["from-start"]
    assert "--growth-strategy top " in commands["grown-top"]
    for name, command in commands.items():
        grown = name != "from-start"
        assert (f"--task translation_layer_growth --growth-stages {STAGES} " in command) == grown
        assert ("--encoder-layers" in command) != grown
        assert ("inverse_sqrt_restart" in command) == (name in ("grown", "grown-top"))
        own = rf"--(encoder-layers|task|growth-stages|growth-strategy|lr-scheduler|save-dir) \S+ |(?<=dir ){name}"
        assert re.sub(own, "", command) == re.sub(own, "", commands["grown"])


@pytest.mark.parametrize("stages", ["6", "2:1,4:1", "2:100u,4:", "2:100u,4:100u@200x2"])
def test_other_stages_are_refused(stages: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_options(["--corpus=text", f"--growth-stages={stages}"])
    assert f"--growth-stages {stages} has to be stages in updates, such as" in capsys.readouterr().err


@pytest.mark.parametrize("runs", ["grown", "from-start", "grown,from-start", "from-start,grown-up"])
def test_other_runs_are_refused(runs: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_options(["--corpus=text", f"--growth-runs={runs}"])
    assert f"--growth-runs {runs} has to be from-start and some of" in capsys.readouterr().err


def test_some_runs() -> None:
    assert list(trainings(parse_options(["--corpus=text", "--growth-runs=from-start,grown"]))) == [
        "from-start",
        "grown",
    ]


def test_steps_are_measured_once(tmp_path: Path) -> None:
    (tmp_path / "growth-steps.json").write_text('{"2": [0.25]}', encoding="utf-8")
    assert measure_steps(tmp_path, parse_options(["--corpus=text"])) == {"2": [0.25]}


def test_section(numbers: dict[str, Any]) -> None:
    text = page([GROWTH.section(numbers, None)])
    assert "grown 2 -> 4 -> 6 in one command" in text
    assert f"| {NAMES['from-start']} | 1,234 | 5.000 | 4.000 | 9.9 | 9.9 | 432 | 200 |" in text
    assert f"| {NAMES['grown']} | 1,000 | 5.250 | 4.250 | 9.9 | 9.9 | 432 | 165 |" in text
    assert "0.250 s with 2, 0.400 s with 4, 0.500 s with 6 encoder layers: growing takes 18% less time." in text
    assert "the model from the start is past update 300, validation loss 5.500." in text
    assert "| 100 | 2 | 7.000 | 8.000 | 8.000 | 8.000 |" in text
    assert "| 200 | 4 | 6.000 |" in text
    assert "| 300 | 6 | 5.500 |" in text
    assert max(len(line) for line in text.splitlines() if line[:1] != "|") <= 120


def test_section_does_not_repeat_what_the_first_part_says(numbers: dict[str, Any]) -> None:
    text = page([GROWTH.section(numbers, numbers)])
    assert "Text, machine, versions and seed are those above" in text
    assert "runs these, after preparing the text as above:" in text


def test_every_setting_is_an_option() -> None:
    options = parse_options(["--corpus=text"])
    assert all(hasattr(options, setting) for part in PARTS.values() for setting in part.settings)
