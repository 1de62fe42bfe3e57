"""Tables from records, and their places in pages."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import sweep
from record import write_record
from render import main, render_page, tables_of

from fairseq_compat import UserError

SETUP = {"command": "python benchmarks/x.py", "machine": "a machine", "device": "cpu", "threads": 1, "versions": "v"}

README = Path(__file__).parents[2] / "README.md"
DOCS = README.parent / "docs"


def answers(seconds: list[float], amount: int) -> dict[str, list[float]]:
    return {"seconds": seconds, "amount": [amount] * len(seconds), "steps": [0] * len(seconds)}


def meeting(part: str, beam: int, sentences: int, rows: dict[str, Any]) -> dict[str, Any]:
    case = {"part": part, "beam": beam, "sentences": sentences, "length": 0}
    return {"precision": "fp32", "case": case, "rows": rows}


def bench_record() -> dict[str, Any]:
    """Stock met depth-wise, and in another group two cells, which did not decode."""
    about = {"family": "depth-wise", "layers": 6, "beside": "stock 6", "arch": "x", "extra": [], "unused": 0}
    first = {"stock 6": answers([1.0, 2.0, 4.0], 100), "depth-wise": answers([2.0, 2.0, 2.0], 100)}
    second = {"stock 6": answers([8.0] * 3, 100), "depth-wise, two-cells": answers([4.0, 8.0, 16.0], 100)}
    decoding = {"stock 6": answers([1.0] * 3, 16), "depth-wise": answers([0.5] * 3, 16)}
    return {
        "setup": {**SETUP, "program": "bench", "sentences": [8], "lengths": [10], "precisions": ["fp32"]},
        "rows": {
            "stock 6": {**about, "family": "stock", "parameters": 1000, "unused": 500},
            "depth-wise": {**about, "parameters": 1100},
            "depth-wise, two-cells": {**about, "parameters": 1500},
        },
        "meetings": [
            meeting("training", 0, 0, first), meeting("training", 0, 0, second), meeting("decoding", 4, 8, decoding)
        ],
        "start_up": [{"row": "stock 6", "precision": "fp32", "seconds": seconds} for seconds in (3.0, 5.0)],
        "memory": [
            {"row": "stock 6", "part": "training", "precision": "fp32", "peak": 50 << 20, "unused": 10 << 20},
            {"row": "depth-wise", "part": "training", "precision": "fp32", "peak": 60 << 20, "unused": 0},
        ],
        "skipped": [{"row": "sdt 6", "part": "decoding", "precision": "fp32", "reason": "too little memory: 3"}],
    }  # fmt: skip


def row_of(table: str, name: str) -> list[str]:
    (line,) = [line for line in table.splitlines() if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in line.split("|")[2:-1]]


def test_ratios_are_taken_within_a_round_and_stock_has_the_spread_of_its_rates() -> None:
    tables = tables_of(bench_record())
    # 0.5, 1 and 2 times as fast as stock in the same rounds.
    assert row_of(tables["speed"], "depth-wise")[:2] == ["stock 6", "50, **1.00** (0.75 - 1.50)"]
    assert row_of(tables["speed"], "depth-wise, two-cells")[1] == "12.5, **1.00** (0.75 - 1.50)"
    assert row_of(tables["speed"], "depth-wise")[2] == "32, **2.00** (2.00 - 2.00)"
    assert row_of(tables["speed"], "stock 6")[0] == ""


def test_sizes_leave_unused_copies_out_and_start_up_is_the_median() -> None:
    size = tables_of(bench_record())["size"]
    assert row_of(size, "stock 6") == ["", "1,000", "40", "4.00"]
    assert row_of(size, "depth-wise") == ["stock 6", "1,100 (1.10)", "60 (1.50)", "-"]


def test_skipped_rows_are_listed_with_the_reason() -> None:
    assert tables_of(bench_record())["skipped"] == "- sdt 6, decoding fp32: too little memory: 3\n"


def growth_record() -> dict[str, Any]:
    """Half of 4 updates with 3 layers that take a quarter of the deep model's 12 layers."""
    return {
        "setup": {**SETUP, "program": "growth", "part": "saving"},
        "lengths": {"3": 2, "12": 2},
        "rounds": [
            {"deep": [4.0] * 4, "staged": [1.0, 1.0, 4.0, 4.0], "steps": {"3": [1.0, 1.0], "12": [4.0, 4.0]}}
        ],
        "growth": [{"before": 3, "after": 12, "updates": 2, "seconds": 0.25}],
    }  # fmt: skip


def test_growths_saving_and_its_prediction() -> None:
    tables = tables_of(growth_record())
    assert row_of(tables["rounds"], "median") == ["", "", "37.5%", "37.5%", "+0.0"]
    assert row_of(tables["steps"], "3") == ["2", "1000", "0.250"]
    assert row_of(tables["growth"], "3 -> 12") == ["0.25", "0.25"]


def test_time_to_the_deep_models_loss() -> None:
    runs = {
        "deep": {"lengths": {"8": 4}, "losses": {"2": 8.0, "4": 7.0}, "steps": {"8": 2.0}},
        "late": {"lengths": {"4": 2, "8": 2}, "losses": {"2": 8.0, "4": 6.0}, "steps": {"4": 1.0, "8": 2.0}},
    }
    tables = tables_of({"setup": {**SETUP, "program": "growth", "part": "time-to-loss"}, "runs": runs})
    # 2 s to the first validation, and half-way to the second, 4 s later, the loss is 7.
    assert tables["times"].splitlines()[-1].endswith("| 4: 2, 8: 2 | 6 | 6.000 | 4 | 0.50 |")


class TestPages:
    @pytest.fixture
    def page(self, tmp_path: Path) -> Path:
        (tmp_path / "records").mkdir()
        (tmp_path / "records" / "run.json").write_text(json.dumps(bench_record()))
        return tmp_path / "page.md"

    def test_a_table_takes_the_place_between_its_markers(self, page: Path) -> None:
        page.write_text("above\n\n<!-- run size -->\nold\n<!-- end of run size -->\n\nbelow\n")
        assert render_page(page) == 1
        text = page.read_text()
        assert "old" not in text
        assert "| depth-wise | stock 6 | 1,100 (1.10) |" in text
        assert text.startswith("above\n")
        assert text.endswith("\nbelow\n")
        assert render_page(page) == 1
        assert page.read_text() == text

    def test_a_table_without_record_stays(self, page: Path) -> None:
        text = "<!-- other size -->\n\n| by hand |\n\n<!-- end of other size -->\n<!-- comment -->\n"
        page.write_text(text)
        assert render_page(page) == 0
        assert page.read_text() == text

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("<!-- run size -->\n", "run size"),
            (
                "<!-- run size -->\n<!-- run speed -->\n<!-- end of run size -->\n<!-- end of run speed -->\n",
                "run size",
            ),
            ("<!-- run nothing -->\n<!-- end of run nothing -->\n", "no table nothing"),
        ],
    )
    def test_bad_markers_are_refused(self, page: Path, text: str, words: str) -> None:
        page.write_text(text)
        with pytest.raises(UserError, match=words):
            render_page(page)
        assert page.read_text() == text

    def test_a_file_that_is_no_record_is_refused(self, page: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (page.parent / "records" / "run.json").write_text("[]")
        page.write_text("<!-- run size -->\n<!-- end of run size -->\n")
        assert main([str(page)]) == 1
        assert "run.json is not a record" in capsys.readouterr().err


@pytest.mark.parametrize("path", sorted((DOCS / "records").glob("[!s]*.json")), ids=str)
def test_records_of_the_docs_have_tables(path: Path) -> None:
    record = json.loads(path.read_text(encoding="utf-8"))
    assert {"program", "command", "machine", "versions"} <= set(record["setup"])
    # A program that is gone has left its numbers, and the text that was made of them.
    assert (len(tables_of(record)) > 1) == (record["setup"]["program"] not in ("dropout_noise", "depth_profile"))


@pytest.mark.parametrize("page", [README, *sorted(DOCS.glob("*.md"))], ids=lambda page: page.name)
def test_the_pages_are_those_of_the_records(page: Path, tmp_path: Path) -> None:
    (tmp_path / "records").symlink_to(DOCS / "records")
    copy = tmp_path / page.name
    shutil.copy(page, copy)
    render_page(copy)
    assert copy.read_text() == page.read_text()


@pytest.mark.parametrize("page", [DOCS / "results.md", DOCS / "analysis.md"], ids=lambda page: page.name)
def test_every_result_has_a_record(page: Path) -> None:
    named = re.findall(r"^<!-- ([\w-]+) [\w.-]+ -->$", page.read_text(), re.MULTILINE)
    assert named
    for name in named:
        plan = sweep.PLANS / f"{name.removeprefix('protocol_')}.toml"
        assert (plan if name.startswith("protocol_") else DOCS / "records" / f"{name}.json").is_file()


def test_several_seeds_are_means_with_each_seeds_own_baseline() -> None:
    def part(scores: dict[str, float]) -> dict[str, Any]:
        runs = {
            name: {"parameters": 5, "seconds": 10 * score, "tokens_per_second": 7,
                   "valid": {"2": {"loss": score, "nll_loss": score / 2}}}
            for name, score in scores.items()
        }  # fmt: skip
        systems = [{"mean": score, **({"p_values": [score / 100]} if place else {})}
                   for place, score in enumerate(scores.values())]  # fmt: skip
        metrics = {name: {"metric": name, "signature": "s", "systems": systems} for name in ("sacrebleu", "chrf")}
        return {"runs": runs, "scores": metrics}

    record = {"setup": SETUP | {"program": "results"}, **part({"plain": 1.0, "alone": 5.0, "new": 2.0})}
    record["repeated"] = {"2": part({"plain-seed2": 2.0, "new-seed2": 4.0})}
    table = tables_of(record)["scores"]
    plain, alone, new = (row_of(table, f"`{name}`") for name in ("plain", "alone", "new"))
    assert plain == ["5", "2", "1.500 ± 0.707", "0.750 ± 0.354", "1.5 ± 0.7", "", "1.5 ± 0.7", "", "15", "7"]
    assert alone == ["5", "1", "5.000", "2.500", "5.0", "0.0500", "5.0", "0.0500", "50", "7"]
    assert new[4:6] == ["3.0 ± 1.4", "0.0200, 0.0400"]


def test_a_plan_has_its_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- protocol_multi30k grid -->\n<!-- end of protocol_multi30k grid -->\n")
    monkeypatch.setattr(sweep, "RESULTS", tmp_path)
    assert render_page(page) == 1
    assert "| `depthwise_lstm_open` |" in page.read_text()


def test_a_file_that_is_no_record_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "probe.json").write_text("[1]")
    with pytest.raises(UserError, match=r"probe\.json is not a record"):
        write_record(tmp_path, "probe", {"setup": SETUP})
    assert (tmp_path / "probe.json").read_text() == "[1]"
