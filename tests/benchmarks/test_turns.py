"""Works and processes that take turns, and what happens when one of them ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from turns import Remote, WorkFailedError, quartiles, ratios, reason_of, take_turns
from workplace import StepwiseTraining

from fairseq_compat import UserError


def work(name: str, turns: list[str], fails_at: int = -1) -> Callable[[int], float]:
    """A work that notes its name in a common list, and fails at one of its turns."""

    def run(_: int) -> float:
        if turns.count(name) == fails_at:
            raise WorkFailedError("its process was killed")
        turns.append(name)
        return float(len(turns))

    return run


def test_each_round_begins_with_the_next_work_and_warm_up_does_not_count() -> None:
    turns: list[str] = []
    results = take_turns({name: work(name, turns) for name in "abc"}, rounds=3, warm_up=1)
    assert "".join(turns) == "cab" + "abc" + "bca" + "cab"
    assert results["a"] == [4.0, 9.0, 11.0]


def test_a_work_that_fails_is_taken_out_and_the_others_go_on() -> None:
    turns: list[str] = []
    failures: list[tuple[str, str]] = []
    works = {"a": work("a", turns), "b": work("b", turns, fails_at=2)}
    results = take_turns(works, rounds=3, warm_up=1, failed=lambda *failure: failures.append(failure))
    assert failures == [("b", "its process was killed")]
    assert list(works) == list(results) == ["a"]
    assert len(results["a"]) == 3


def test_without_a_handler_a_failure_is_passed_on() -> None:
    with pytest.raises(WorkFailedError):
        take_turns({"a": work("a", [], fails_at=0)}, rounds=1)


def test_ratios_are_of_the_same_round_and_quartiles_of_one_value_are_that_value() -> None:
    assert ratios([2.0, 9.0], [1.0, 3.0]) == [2.0, 3.0]
    assert quartiles([1.0, 2.0, 3.0, 4.0, 5.0]) == (2.0, 3.0, 4.0)
    assert quartiles([7.0]) == (7.0, 7.0, 7.0)


def echo(connection: Connection, greeting: str) -> None:
    """Serve: greet, then send messages back; refuse one."""
    connection.send(greeting)
    while True:
        message = connection.recv()
        if message == "bad":
            raise UserError("bad is refused")
        connection.send(message)


def test_a_process_answers_and_its_error_is_an_answer() -> None:
    remote = Remote(echo, "hello")
    try:
        assert remote.answer() == "hello"
        assert remote.ask(5) == 5
        with pytest.raises(WorkFailedError, match="bad is refused"):
            remote.ask("bad")
    finally:
        remote.close()


def test_a_process_that_the_system_kills_is_a_work_that_failed() -> None:
    remote = Remote(echo, "hello")
    try:
        remote.answer()
        assert remote.process.pid
        os.kill(remote.process.pid, signal.SIGKILL)
        with pytest.raises(WorkFailedError, match="killed"):
            remote.ask(5)
    finally:
        remote.close()


def test_a_training_that_cannot_begin_has_failed(tmp_path: Path) -> None:
    training = StepwiseTraining(["train", "--no-such-option"], tmp_path / "training.log")
    try:
        with pytest.raises(WorkFailedError):
            training.answer()
    finally:
        training.close()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("DefaultCPUAllocator: can't allocate memory:\n you tried 5 bytes"), "too little memory: Default"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "too little memory: CUDA"),
        (MemoryError(), "too little memory: MemoryError"),
        (UserError("--encoder-units 9 is out of range"), "--encoder-units 9 is out of range"),
        (ValueError("a\n b"), "ValueError: a b"),
    ],
)
def test_reasons(error: Exception, reason: str) -> None:
    assert reason_of(error).startswith(reason)
