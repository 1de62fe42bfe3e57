"""The command line, records and turns that all programs share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import records
import turns


def work(name: str, order: list[str]) -> Callable[[], int]:
    """A work that notes its name in a common list."""

    def run() -> int:
        order.append(name)
        return len(order)

    return run


def test_each_round_begins_with_the_next_work_and_warm_up_does_not_count() -> None:
    order: list[str] = []
    results = turns.take_turns({name: work(name, order) for name in "abc"}, rounds=3, warm_up=1)
    assert "".join(order) == "cab" + "abc" + "bca" + "cab"
    assert results["a"] == [4, 9, 11]


def test_ratios_are_of_the_same_round_and_the_extent_of_one_value_is_that_value() -> None:
    assert turns.ratios([2.0, 9.0], [1.0, 3.0]) == [2.0, 3.0]
    assert turns.extent([5.0, 2.0, 3.0, 4.0, 1.0]) == (1.0, 3.0, 5.0)
    assert turns.extent([7.0]) == (7.0, 7.0, 7.0)


def test_a_command_names_no_folder_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    given = ["--work", "/a/b", "--jobs", "2", "--records=/c", "--data", "/d/e/long/data", "stock=/d/e/last.pt", "a b"]
    command = records.describe_command("x", given)
    assert command.endswith("OMP_NUM_THREADS=2 python benchmarks/x.py --jobs 2 --data .../data stock=.../last.pt 'a b'")
