"""The page and the figures of ``bench.py`` from a record written by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from bench_figures import lines_by_depth, write_figures
from bench_page import page, peak, rates, speeds
from bench_rows import Case

TRAINING = Case("training")
LARGE = Case("decoding", beam=4, sentences=8)


def answers(seconds: list[float], amount: int) -> dict[str, list[float]]:
    return {"seconds": seconds, "amount": [amount] * len(seconds), "steps": [0] * len(seconds)}


def meeting(case: Case, **rows: dict[str, list[float]]) -> dict[str, Any]:
    return {
        "precision": "fp32",
        "case": case.as_numbers(),
        "rows": {name.replace("_", " "): row for name, row in rows.items()},
    }


def a_record() -> dict[str, Any]:
    """Stock 6 met depth-wise, and in another group two-cells; two-cells did not decode."""
    about = {"family": "depth-wise", "layers": 6, "beside": "stock 6", "arch": "x", "extra": [], "unused": 0}
    return {
        "setup": {
            "command": "python benchmarks/bench.py", "machine": "a machine", "device": "cpu", "threads": 2,
            "versions": "versions", "train_tokens": 100, "sentences": [8], "lengths": [10], "batches": 2, "rounds": 3,
            "starts": 2, "precisions": ["fp32"],
            "size": {"name": "tiny", "width": 4, "hidden": 8, "heads": 1, "vocabulary": 9},
        },
        "rows": {
            "stock 6": {**about, "family": "stock", "parameters": 1000, "unused": 500},
            "depth-wise": {**about, "parameters": 1100},
            "two-cells": {**about, "parameters": 1500},
        },
        "meetings": [
            meeting(TRAINING, stock_6=answers([1.0, 2.0, 4.0], 100), **{"depth-wise": answers([2.0, 2.0, 2.0], 100)}),
            meeting(TRAINING, stock_6=answers([8.0, 8.0, 8.0], 100), **{"two-cells": answers([4.0, 8.0, 16.0], 100)}),
            meeting(LARGE, stock_6=answers([1.0, 1.0, 1.0], 16), **{"depth-wise": answers([0.5, 0.5, 0.5], 16)}),
        ],
        "start_up": [
            {"row": "stock 6", "precision": "fp32", "seconds": 3.0},
            {"row": "stock 6", "precision": "fp32", "seconds": 5.0},
            {"row": "depth-wise", "precision": "fp32", "seconds": 5.0},
        ],
        "memory": [
            {"row": "stock 6", "part": "training", "precision": "fp32", "peak": 50 << 20, "unused": 10 << 20},
            {"row": "depth-wise", "part": "training", "precision": "fp32", "peak": 60 << 20, "unused": 0},
        ],
        "skipped": [{"row": "two-cells", "part": "decoding", "precision": "fp32", "reason": "too little memory: 3"}],
    }  # fmt: skip


def row_of(text: str, name: str, table: int) -> list[str]:
    lines = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in lines[table].strip("|").split("|")]


class TestNumbers:
    def test_a_round_is_compared_with_stocks_of_the_same_meeting(self) -> None:
        record = a_record()
        assert speeds(record, "depth-wise", "fp32", TRAINING) == [0.5, 1.0, 2.0]
        assert speeds(record, "two-cells", "fp32", TRAINING) == [2.0, 1.0, 0.5]
        assert speeds(record, "two-cells", "fp32", LARGE) == []
        assert speeds(record, "depth-wise", "bf16", TRAINING) == []

    def test_rates_of_stock_are_those_of_all_meetings(self) -> None:
        assert rates(a_record(), "stock 6", "fp32", TRAINING) == [100, 50, 25, 12.5, 12.5, 12.5]

    def test_unused_copies_are_left_out_of_memory(self) -> None:
        assert peak(a_record(), "stock 6", "fp32", "training") == 40 << 20
        assert peak(a_record(), "stock 6", "fp32", "decoding") is None


class TestPage:
    def test_speed(self) -> None:
        text = page(a_record())
        # Of 100, 50, 25 and three times 12.5 tokens/s; quartiles 12.5 and 43.75, by the median.
        assert row_of(text, "stock 6", 0) == ["stock 6", "", "18.8 (0.67 - 2.33)", "16 (1.00 - 1.00)", "-"]
        assert row_of(text, "depth-wise", 0) == [
            "depth-wise", "stock 6", "50, **1.00** (0.75 - 1.50)", "32, **2.00** (2.00 - 2.00)", "-",
        ]  # fmt: skip
        assert row_of(text, "two-cells", 0)[2:4] == ["12.5, **1.00** (0.75 - 1.50)", "-"]

    def test_size_memory_and_start_up(self) -> None:
        text = page(a_record())
        assert row_of(text, "stock 6", 1) == ["stock 6", "", "1,000", "40", "-", "4.00"]
        assert row_of(text, "depth-wise", 1) == [
            "depth-wise",
            "stock 6",
            "1,100 (1.10)",
            "60 (1.50)",
            "-",
            "5.00 (1.25)",
        ]
        assert row_of(text, "two-cells", 1) == ["two-cells", "stock 6", "1,500 (1.50)", "-", "-", "-"]

    def test_what_was_not_measured_is_said(self) -> None:
        assert "- two-cells, decoding fp32: too little memory: 3" in page(a_record())

    def test_stock_that_was_not_measured_leaves_rates_alone(self) -> None:
        record = a_record()
        for one in record["meetings"]:
            one["rows"].pop("stock 6")
        record["memory"] = record["memory"][1:]
        text = page(record)
        assert row_of(text, "depth-wise", 0)[2:4] == ["50", "32"]
        assert row_of(text, "depth-wise", 1)[3] == "60"


def deep_record() -> dict[str, Any]:
    record = a_record()
    record["rows"] = {
        f"{kind.format(layers)}": {"family": family, "layers": layers, "beside": f"stock {layers} pre-norm"}
        for layers in (24, 6)
        for kind, family in (("stock {} pre-norm", "stock pre-norm"), ("sdt {}", "sdt"))
    }
    record["meetings"] = [
        {"precision": "fp32", "case": TRAINING.as_numbers(),
         "rows": {name: answers([float(about["layers"])], 100)}}
        for name, about in record["rows"].items()
    ]  # fmt: skip
    return record


class TestFigures:
    def test_a_line_goes_over_the_depths_of_a_kind(self) -> None:
        lines = lines_by_depth(deep_record(), "fp32", "training")
        assert list(lines) == ["stock pre-norm", "sdt"]
        for line in lines.values():
            assert [layers for layers, _ in line] == [6, 24]
            assert all(math.isclose(found[0], 100 / layers) for layers, found in line)
        assert lines_by_depth(deep_record(), "fp32", "decoding") == {}

    def test_the_same_record_is_the_same_file(self, tmp_path: Path) -> None:
        drawn = []
        for name in ("one", "other"):
            folder = tmp_path / name
            folder.mkdir()
            assert list(write_figures(deep_record(), folder, "bench").values()) == [f"{name}/bench_depth.svg"]
            drawn.append((folder / "bench_depth.svg").read_bytes())
        assert drawn[0] == drawn[1]

    def test_nothing_to_draw(self, tmp_path: Path) -> None:
        assert write_figures(a_record(), tmp_path, "bench") == {}
        assert not list(tmp_path.iterdir())
