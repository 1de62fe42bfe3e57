"""``benchmarks/bench.py`` as a program, with tiny models. How fast they are is not asked here."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
from pathlib import Path
from typing import Any

import bench
import pytest
import torch
from bench_rows import FAMILIES, INT8, LARGE, PROTOCOL, QUICK, ROWS, UNITS, groups
from turns import Remote

#: With three layers there are no blocks of six: sdt cannot be built.
TINY = [
    "--size=tiny", "--rows=mute 4,mute 4, loop,sdt 6", "--rounds=1", "--starts=1", "--batches=2", "--train-tokens=60",
    "--decode-batches=1,2", "--lengths=5,9", "--together=4",
    "--model-overrides=--encoder-layers 3 --decoder-layers 1",
]  # fmt: skip


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """What a run printed, and its record; its processes are forks, which start at once."""
    importlib.import_module("torch._dynamo")  # the first optimizer of a process does it: here, and not in every fork
    records = tmp_path_factory.mktemp("bench") / "records"
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as printed:
        patch.setattr(Remote, "start_method", "fork")
        assert bench.main([*TINY, f"--records={records}"]) == 0
    return printed.getvalue(), json.loads((records / "bench_cpu_tiny.json").read_text(encoding="utf-8"))


class TestRun:
    def test_stock_is_added_and_a_row_that_cannot_be_built_is_skipped(
        self, measured: tuple[str, dict[str, Any]]
    ) -> None:
        record = measured[1]
        assert list(record["rows"]) == ["stock 6 pre-norm", "mute 4", "mute 4, loop"]
        assert [(one["row"], one["part"]) for one in record["skipped"]] == [
            ("sdt 6", "training"),
            ("sdt 6", "decoding"),
        ]
        assert all("--encoder-layers 3 is not a multiple of" in one["reason"] for one in record["skipped"])

    def test_every_case_of_all_rows(self, measured: tuple[str, dict[str, Any]]) -> None:
        meetings = measured[1]["meetings"]
        assert [tuple(meeting["case"].values()) for meeting in meetings] == [
            ("training", 0, 0, 0), ("training", 0, 0, 5), ("training", 0, 0, 9),
            ("decoding", 4, 1, 0), ("decoding", 4, 2, 0), ("decoding", 1, 1, 0), ("decoding", 1, 2, 0),
            ("encoding", 0, 1, 0), ("encoding", 0, 2, 0), ("decoding", 4, 2, 5), ("decoding", 4, 2, 9),
        ]  # fmt: skip
        for meeting in meetings:
            assert set(meeting["rows"]) >= {"stock 6 pre-norm", "mute 4"}
            for answers in meeting["rows"].values():
                assert len(answers["seconds"]) == 1
                assert answers["seconds"][0] > 0

    def test_rows_do_the_same_work(self, measured: tuple[str, dict[str, Any]]) -> None:
        for meeting in measured[1]["meetings"]:
            stock, *others = meeting["rows"].values()
            assert all((stock["amount"], stock["steps"]) == (one["amount"], one["steps"]) for one in others)
        single = measured[1]["meetings"][3]["rows"]["mute 4"]
        assert single["amount"] == [2]
        assert single["steps"] == [20 + 37]  # sentences of 19 and 36 tokens, each with one step more for its end

    def test_memory_and_start_up_of_each_process(self, measured: tuple[str, dict[str, Any]]) -> None:
        record = measured[1]
        assert [(one["row"], one["part"]) for one in record["memory"]] == [
            (row, part) for part in ("training", "decoding") for row in record["rows"]
        ]
        assert all(one["peak"] > one["unused"] for one in record["memory"])
        assert [one["row"] for one in record["start_up"]] == list(record["rows"])
        assert min(one["seconds"] for one in record["start_up"]) > 0

    def test_its_tables_are_printed(self, measured: tuple[str, dict[str, Any]]) -> None:
        assert "| mute 4 | stock 6 pre-norm |" in measured[0]
        assert "| mute 4, loop | mute 4 |" in measured[0]


class TestNothingMeasured:
    def test_too_little_memory(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """In a real process, of which nothing is imported before."""
        arguments = ["--size=base", "--rows=stock 6", "--parts=decoding", "--starts=1", "--memory=0.01"]
        assert bench.main([*arguments, f"--records={tmp_path}"]) == 1
        assert "nothing could be measured: stock 6: too little memory" in capsys.readouterr().err.splitlines()[-1]

    def test_no_such_device(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        assert bench.main(["--device=cuda"]) == 1
        assert "--device cuda" in capsys.readouterr().err


class TestRows:
    def test_each_is_compared_with_a_row_of_as_many_layers(self) -> None:
        for row in ROWS.values():
            other = ROWS[row.beside]
            if row.name not in PROTOCOL:
                assert (other.layers, other.decoder_layers) == (row.layers, row.decoder_layers)
            assert other.beside == other.name
        assert {*QUICK, *FAMILIES, *UNITS, *INT8, *LARGE, *PROTOCOL} <= set(ROWS)

    def test_rows_of_the_protocol_have_the_depth_of_their_systems(self) -> None:
        assert {ROWS[name].layers for name in ("deep", "sdt", "deep_blocks", "deep_hyper", "sdt_no_restart")} == {12}
        assert {ROWS[name].layers for name in ("transformer", "depthwise_lstm", "mute")} == {4}

    def test_groups_hold_every_row_once_and_what_it_is_compared_with_first(self) -> None:
        found = groups(list(ROWS.values()), 3)
        assert all(1 < len(group) <= 3 for group in found)
        assert all(group[0].name == row.beside for group in found for row in group)
        others = [row.name for group in found for row in group[1:]]
        assert sorted(others) == sorted(row.name for row in ROWS.values() if row.name != row.beside)
        alone = groups([ROWS["big, bf16"], ROWS["big, fused"]], 1)
        assert [[row.name for row in group] for group in alone] == [["big, bf16"], ["big, fused"]]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (
            "depth-wise,depth-wise, 1-layer,sdt 12, no blocks",
            ["depth-wise", "depth-wise, 1-layer", "sdt 12, no blocks"],
        ),
        ("sdt 12, mute 4,sdt 12", ["sdt 12", "mute 4"]),
        ("int8", list(INT8)),
    ],
)
def test_names_of_rows_hold_commas(text: str, names: list[str]) -> None:
    assert bench.rows_named(text) == names


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--rows=mute 4,mute 9", ["--rows", "'mute 9'", "mute 6"]),
        ("--rows=", ["--rows"]),
        ("--size=huge", ["--size", "'huge'", "narrow"]),
        ("--rounds=0", ["--rounds", "'0'", "at least 1"]),
        ("--memory=-1", ["--memory", "'-1'"]),
        ("--decode-batches=1,none", ["--decode-batches", "'none'"]),
        ("--precisions=fp32,fp8", ["--precisions", "'fp8'", "bf16"]),
        ("--records=no/such/folder", ["--records", "no/such/folder"]),
    ],
)
def test_bad_option_is_named_with_its_value(option: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        bench.main([option])
    assert ended.value.code == 2
    sentence = capsys.readouterr().err.splitlines()[-1]
    assert all(word in sentence for word in words)
