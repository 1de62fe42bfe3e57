"""Part "units" of ``benchmarks/results.py``: its commands and its section of the page."""

from __future__ import annotations

import re
from typing import Any

import pytest
from results import parse_options
from results_page import page
from results_units import BASELINE, COMPARED, NAMES, UNITS, trainings


@pytest.fixture
def numbers() -> dict[str, Any]:
    """What the part's file holds."""
    run = {"parameters": 1234, "seconds": 99.6, "tokens_per_second": 5.2, "valid": {"10": {"loss": 5, "nll_loss": 4}}}
    systems = {
        name: {metric: {"score": "9.9", "interval": "9.9 ± 0.9", "p": ""} for metric in ("BLEU", "chrF2")}
        for name in COMPARED
    }
    units = {
        "mean": {"attention_positions": 0.5, "attention_outputs": 0.25, "feed_forward_outputs": 0.125},
        "layers": [{"weights": [0.75, 0.25]}, {"weights": [0.5, 0.5]}],
    }
    return {
        "settings": {
            "corpus": "text", "languages": "en -> de", "merges": 60, "threads": 1, "layers": 3, "width": 16, "heads": 2,
            "unit_updates": 10, "warm_up": 100, "max_tokens": 200, "learning_rate": 0.001, "seed": 1,
        },
        "text": {"train": 9, "valid": 9, "test": 9, "dictionary": 99},
        "about": {"machine": "a machine", "versions": "versions"},
        "prepared": ["cat"],
        "commands": ["train"],
        "made_by": "python benchmarks/results.py",
        "runs": dict.fromkeys(COMPARED, run),
        "scores": {"systems": systems, "signatures": {"BLEU": "signature"}},
        "units": [units] * 3,
    }  # fmt: skip


def test_trainings_differ_only_in_the_units() -> None:
    commands = trainings(parse_options(["--corpus=text", "--unit-updates=77"]))
    assert list(commands) == list(COMPARED)
    assert "--arch mute_transformer --" in commands[BASELINE]
    assert "--encoder-units 1 " in commands[BASELINE]
    assert "--arch mute_transformer_sequential " in commands["mute-sequential"]
    for name, command in commands.items():
        assert "--max-update 77 " in command
        assert "--criterion label_smoothed_cross_entropy_with_auxiliary " in command
        own = rf"--(arch|encoder-units|save-dir) \S+ |(?<=dir ){name}"
        assert re.sub(own, "", command) == re.sub(own, "", commands["mute"])


def test_too_few_updates_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_options(["--corpus=text", "--unit-updates=3"])
    assert "--unit-updates 3 has to be 4 or more" in capsys.readouterr().err


def test_section(numbers: dict[str, Any]) -> None:
    text = page([UNITS.section(numbers, None)])
    assert f"| {NAMES[BASELINE]} | 1,234 | 5.000 | 4.000 | 9.9 | 9.9 | 100 | 5 |" in text
    weights = "0.750 0.250; 0.500 0.500"
    assert f"| {NAMES['mute']} | 0.500 | 0.250 | 0.125 | .447 / .576 / .449 | {weights} |" in text
    assert f"| {NAMES['mute-biased']} | 0.500 | 0.250 | 0.125 | - | {weights} |" in text
    assert max(len(line) for line in text.splitlines() if line[:1] != "|") <= 120
