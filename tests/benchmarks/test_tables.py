"""Tables from records, and their places in pages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sweep
from tables import make_tables, render

SETUP = {"command": "python benchmarks/x.py", "machine": "a machine", "device": "cpu", "threads": 1, "versions": "v"}

README = Path(__file__).parents[2] / "README.md"
DOCS = README.parent / "docs"


def answers(seconds: list[float], amount: int) -> dict[str, list[float]]:
    return {"seconds": seconds, "amount": [amount] * len(seconds)}


def meeting(part: str, beam: int, sentences: int, rows: dict[str, Any], length: int = 0) -> dict[str, Any]:
    case = {"part": part, "beam": beam, "sentences": sentences, "length": length}
    return {"precision": "fp32", "case": case, "rows": rows}


def bench_record() -> dict[str, Any]:
    """Stock met depth-wise, and in another group two cells, which did not decode."""
    first = {"stock 6": answers([1.0, 2.0, 4.0], 100), "depth-wise": answers([2.0, 2.0, 2.0], 100)}
    second = {"stock 6": answers([8.0] * 3, 100), "depth-wise, two-cells": answers([4.0, 8.0, 16.0], 100)}
    decoding = {"stock 6": answers([1.0] * 3, 16), "depth-wise": answers([0.5] * 3, 16)}
    return {
        "setup": {**SETUP, "program": "bench", "precisions": ["fp32"]},
        "rows": {
            "stock 6": {"beside": "stock 6", "parameters": 1000},
            "depth-wise": {"beside": "stock 6", "parameters": 1100},
            "depth-wise, two-cells": {"beside": "stock 6", "parameters": 1500},
        },
        "meetings": [
            meeting("training", 0, 0, first), meeting("training", 0, 0, second), meeting("decoding", 4, 8, decoding),
            meeting("training", 0, 0, second, length=20), meeting("encoding", 0, 8, decoding),
        ],
    }  # fmt: skip


def row_of(table: str, name: str) -> list[str]:
    (line,) = [line for line in table.splitlines() if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in line.split("|")[2:-1]]


def test_ratios_are_taken_within_a_round_and_stock_has_the_spread_of_its_rates() -> None:
    table = make_tables(bench_record())["speed"]
    assert row_of(table, "row") == ["compared with", "training", "beam 4, 8 at once"]
    # 0.5, 1 and 2 times as fast as stock in the same rounds.
    assert row_of(table, "depth-wise") == ["stock 6", "50, **1.00** (0.50 - 2.00)", "32, **2.00** (2.00 - 2.00)"]
    assert row_of(table, "depth-wise, two-cells") == ["stock 6", "12.5, **1.00** (0.50 - 2.00)", "-"]
    assert row_of(table, "stock 6")[0] == ""


class TestPages:
    @pytest.fixture
    def records(self, tmp_path: Path) -> Path:
        (tmp_path / "run.json").write_text(json.dumps(bench_record()))
        (tmp_path / "old.json").write_text(json.dumps({"setup": {**SETUP, "program": "one that is gone"}}))
        return tmp_path

    def test_a_table_takes_the_place_between_its_markers(self, records: Path) -> None:
        text = render("above\n\n<!-- run speed -->\nold\n<!-- end of run speed -->\n\nbelow\n", records)
        assert "old" not in text
        assert "| depth-wise | stock 6 | 50, **1.00** (0.50 - 2.00) |" in text
        assert text.startswith("above\n")
        assert text.endswith("\nbelow\n")
        assert render(text, records) == text

    @pytest.mark.parametrize("name", ["other", "old"])
    def test_a_table_without_record_or_without_program_stays(self, name: str, records: Path) -> None:
        text = f"<!-- {name} size -->\n\n| by hand |\n\n<!-- end of {name} size -->\n<!-- comment -->\n"
        assert render(text, records) == text

    def test_a_plan_has_its_tables(self, records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sweep, "RESULTS", records)
        text = render("<!-- protocol_multi30k grid -->\n<!-- end of protocol_multi30k grid -->\n", records)
        assert "| `depthwise_lstm_open` |" in text

    @pytest.mark.parametrize("page", [README, *sorted(DOCS.glob("*.md"))], ids=lambda page: page.name)
    def test_the_pages_are_those_of_the_records(self, page: Path) -> None:
        text = page.read_text(encoding="utf-8")
        assert render(text, DOCS / "records") == text
