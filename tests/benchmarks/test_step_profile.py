"""``benchmarks/step_profile.py`` as a program, with tiny models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import step_profile
from records import run_program


@pytest.mark.long
def test_operations_of_every_family(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--size=tiny", "--rounds=1", "--train-tokens=100", f"--records={tmp_path}"]
    assert run_program("step_profile", step_profile.parse_options, step_profile.run, given) == 0
    record = json.loads((tmp_path / "step_profile.json").read_text())
    assert list(record["seconds"]) == list(step_profile.ROWS)
    assert min(found["aten::mm"] for found in record["seconds"].values()) > 0
    table = step_profile.table(record)
    for column in range(1, len(table.columns)):
        assert sum(float(row[column]) for row in table.rows[:-3]) == pytest.approx(100, abs=1.5)  # they are rounded
    assert "| % of a step | stock 6 |" in capsys.readouterr().out
