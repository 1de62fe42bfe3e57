"""The command line, records and turns that all programs share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import records

from fairseq_compat import UserError


def work(name: str, turns: list[str]) -> Callable[[], int]:
    """A work that notes its name in a common list."""

    def run() -> int:
        turns.append(name)
        return len(turns)

    return run


def test_each_round_begins_with_the_next_work_and_warm_up_does_not_count() -> None:
    turns: list[str] = []
    results = records.take_turns({name: work(name, turns) for name in "abc"}, rounds=3, warm_up=1)
    assert "".join(turns) == "cab" + "abc" + "bca" + "cab"
    assert results["a"] == [4, 9, 11]


def test_ratios_are_of_the_same_round_and_the_extent_of_one_value_is_that_value() -> None:
    assert records.ratios([2.0, 9.0], [1.0, 3.0]) == [2.0, 3.0]
    assert records.extent([5.0, 2.0, 3.0, 4.0, 1.0]) == (1.0, 3.0, 5.0)
    assert records.extent([7.0]) == (7.0, 7.0, 7.0)


def test_a_command_names_no_folder_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    given = ["--work", "/a/b", "--jobs", "2", "--records=/c", "--data", "/d/e/long/data", "stock=/d/e/last.pt", "a b"]
    command = records.command_of("x", given)
    assert command.endswith("OMP_NUM_THREADS=2 python benchmarks/x.py --jobs 2 --data .../data stock=.../last.pt 'a b'")


def test_a_file_that_is_no_record_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("[1]")
    with pytest.raises(UserError, match=r"run\.json"):
        records.write_record(tmp_path, "run", {"setup": {"program": "x"}})
    assert (tmp_path / "run.json").read_text() == "[1]"
