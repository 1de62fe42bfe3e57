"""``benchmarks/growth.py`` as a program, with tiny models, and what it predicts."""

from __future__ import annotations

import json
from pathlib import Path

import growth
import pytest
from records import run_program
from tables import tables_of


def test_time_saved_by_hand() -> None:
    # 30 updates of 1 s and 10 of 4 s are 70 s instead of 160.
    assert growth.time_saved({3: 30, 8: 10}, {3: 1.0, 6: 2.0, 8: 4.0}) == pytest.approx(90 / 160)
    assert growth.time_saved({8: 21}, {1: 0.1, 8: 0.5}) == 0


def test_every_depth_is_timed_and_models_grow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--size=tiny", "--block-size=1", "--rounds=2", "--train-tokens=100", f"--records={tmp_path}"]
    overrides = "--model-overrides=--decoder-layers 1"
    assert run_program("growth", growth.parse_options, growth.run, [*given, overrides]) == 0
    record = json.loads((tmp_path / "growth.json").read_text())
    assert {blocks: len(seconds) for blocks, seconds in record["steps"].items()} == dict.fromkeys("12345678", 2)
    assert [(one["before"], one["state"]) for one in record["growth"]] == [
        (7, "reset"), (7, "keep"), (4, "reset"), (4, "keep"),
    ]  # fmt: skip
    assert min(one["seconds"] for one in record["growth"]) > 0
    assert "| 4 -> 8 | keep |" in capsys.readouterr().out


def test_tables() -> None:
    setup = {"program": "growth", "command": "c", "machine": "m", "device": "cpu", "threads": 1, "versions": "v"}
    steps = {str(blocks): [float(blocks), 2.0 * blocks] for blocks in range(1, 9)}
    record = {"setup": {**setup, "block_size": 6}, "steps": steps, "growth": []}
    tables = tables_of(record)
    # An update takes as long as there are blocks, whatever the round.
    assert "| the paper's | 35.1% | 35.1% |" in tables["saving"]
    assert "| 12 | 1500 | 0.250 |" in tables["steps"]
