"""``benchmarks/bench.py`` as a program, with tiny models. How fast they are is not asked here."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bench
import pytest
import torch
from bench_rows import QUICK, ROWS, groups

RunBenchmark = Callable[..., subprocess.CompletedProcess[str]]

#: With three layers there are no blocks of six: sdt cannot be built.
TINY = [
    "--size=tiny", "--rows=mute 4,sdt 6", "--rounds=1", "--starts=1", "--batches=2", "--train-tokens=60",
    "--decode-batches=1,2", "--lengths=5,9", "--model-overrides=--encoder-layers 3 --decoder-layers 1",
]  # fmt: skip

#: One worker for all tests here, so that the program runs once.
pytestmark = pytest.mark.xdist_group("bench")


@pytest.fixture(scope="module")
def measured(run_benchmark: RunBenchmark, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, dict[str, Any]]:
    """What a run printed, the folder of its page, and its numbers."""
    docs = tmp_path_factory.mktemp("docs")
    (docs / "benchmarks.md").write_text("<!-- growth -->\n\ngrowth stays\n", encoding="utf-8")
    done = run_benchmark("bench.py", *TINY, f"--docs={docs}", forked=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, docs, json.loads((docs / "records" / "bench_cpu_tiny.json").read_text(encoding="utf-8"))


class TestRun:
    def test_stock_is_added_and_a_row_that_cannot_be_built_is_left_out(
        self, measured: tuple[str, Path, dict[str, Any]]
    ) -> None:
        record = measured[2]
        assert list(record["rows"]) == ["stock 6 pre-norm", "mute 4"]
        assert [(one["row"], one["part"]) for one in record["skipped"]] == [
            ("sdt 6", "training"),
            ("sdt 6", "decoding"),
        ]
        assert all("--encoder-layers 3 is not a multiple of" in one["reason"] for one in record["skipped"])

    def test_every_case_of_both_rows(self, measured: tuple[str, Path, dict[str, Any]]) -> None:
        meetings = measured[2]["meetings"]
        found = [tuple(meeting["case"].values()) for meeting in meetings]
        assert found == [
            ("training", 0, 0, 0), ("training", 0, 0, 5), ("training", 0, 0, 9),
            ("decoding", 4, 1, 0), ("decoding", 4, 2, 0), ("decoding", 1, 1, 0), ("decoding", 1, 2, 0),
            ("decoding", 4, 2, 5), ("decoding", 4, 2, 9),
        ]  # fmt: skip
        for meeting in meetings:
            assert set(meeting["rows"]) == {"stock 6 pre-norm", "mute 4"}
            for answers in meeting["rows"].values():
                assert len(answers["seconds"]) == 1
                assert answers["seconds"][0] > 0

    def test_rows_do_the_same_work(self, measured: tuple[str, Path, dict[str, Any]]) -> None:
        for meeting in measured[2]["meetings"]:
            stock, ours = meeting["rows"].values()
            assert stock["amount"] == ours["amount"]
            assert stock["steps"] == ours["steps"]
        single = measured[2]["meetings"][3]["rows"]["mute 4"]
        assert single["amount"] == [2]
        assert single["steps"] == [20 + 37]  # sentences of 19 and 36 tokens, each with one step more for its end

    def test_memory_and_start_up_of_each_process(self, measured: tuple[str, Path, dict[str, Any]]) -> None:
        record = measured[2]
        assert [(one["row"], one["part"]) for one in record["memory"]] == [
            (row, part) for part in ("training", "decoding") for row in record["rows"]
        ]
        assert all(one["peak"] > one["unused"] for one in record["memory"])
        assert [one["row"] for one in record["start_up"]] == list(record["rows"])
        assert min(one["seconds"] for one in record["start_up"]) > 0

    def test_page(self, measured: tuple[str, Path, dict[str, Any]]) -> None:
        printed, docs, _ = measured
        page = (docs / "benchmarks.md").read_text(encoding="utf-8")
        assert "growth stays" in page
        assert page.count("| mute 4 | stock 6 pre-norm |") == 2
        assert "- sdt 6, training fp32: --encoder-layers 3 is not a multiple" in page
        assert "| mute 4 | stock 6 pre-norm |" in printed
        assert str(docs) not in page

    def test_one_depth_is_no_line_two_lengths_are(self, measured: tuple[str, Path, dict[str, Any]]) -> None:
        docs = measured[1]
        assert [path.name for path in (docs / "figures").iterdir()] == ["bench_cpu_tiny_length.svg"]
        assert "](figures/bench_cpu_tiny_length.svg)" in (docs / "benchmarks.md").read_text(encoding="utf-8")
        drawn = (docs / "figures" / "bench_cpu_tiny_length.svg").read_text(encoding="utf-8")
        assert "stock 6 pre-norm" in drawn
        assert "mute 4" in drawn


class TestNothingMeasured:
    def test_too_little_memory(self, capsys: pytest.CaptureFixture[str]) -> None:
        arguments = ["--size=base", "--rows=stock 6", "--parts=decoding", "--starts=1", "--memory=0.01"]
        assert bench.main(arguments) == 1
        last = capsys.readouterr().err.splitlines()[-1]
        assert last.startswith("bench: error: nothing could be measured: stock 6: too little memory")

    def test_no_such_device(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        assert bench.main(["--device=cuda"]) == 1
        assert "--device cuda: PyTorch finds no GPU here" in capsys.readouterr().err


class TestRows:
    def test_each_is_compared_with_stock_of_as_many_layers(self) -> None:
        for row in ROWS.values():
            stock = ROWS[row.beside]
            assert stock.is_stock
            assert (stock.layers, stock.decoder_layers) == (row.layers, row.decoder_layers)
            assert row.is_stock == (stock is row)
        assert set(QUICK) <= set(ROWS)

    def test_groups_hold_every_row_once_and_stock_first(self) -> None:
        found = groups(list(ROWS.values()), 3)
        assert all(1 < len(group) <= 3 for group in found)
        assert all(group[0].name == row.beside for group in found for row in group)
        others = [row.name for group in found for row in group[1:]]
        assert sorted(others) == sorted(row.name for row in ROWS.values() if not row.is_stock)
        assert [[row.name for row in group] for group in groups([ROWS["stock 12 pre-norm"]], 2)] == [
            ["stock 12 pre-norm"]
        ]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (
            "depth-wise,depth-wise, 1-layer,sdt 12, no blocks",
            ["depth-wise", "depth-wise, 1-layer", "sdt 12, no blocks"],
        ),
        ("sdt 12, mute 4,sdt 12", ["sdt 12", "mute 4"]),
        ("all", list(ROWS)),
    ],
)
def test_names_of_rows_hold_commas(text: str, names: list[str]) -> None:
    assert bench.rows_named(text) == names


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--rows=mute 4,mute 9", ["--rows", "'mute 9' begins with no row's name", "mute 6"]),
        ("--rows=", ["--rows", "no row is named"]),
        ("--size=huge", ["--size", "'huge'", "narrow"]),
        ("--rounds=0", ["--rounds", "'0'", "at least 1"]),
        ("--together=1", ["--together", "at least 2"]),
        ("--memory=-1", ["--memory", "'-1' is not a number above 0"]),
        ("--decode-batches=1,none", ["--decode-batches", "'none'"]),
        ("--precisions=fp32,fp8", ["--precisions", "'fp8'", "bf16"]),
        ("--docs=no/such/folder", ["--docs", "no/such/folder is no folder"]),
    ],
)
def test_bad_option_gets_one_sentence(option: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        bench.main([option])
    assert ended.value.code == 2
    sentence = capsys.readouterr().err.splitlines()[-1]
    assert all(word in sentence for word in words)
