"""Processes that take turns, and what happens when one of them ends."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from bench_rows import ROWS, SIZES, Case
from bench_turns import RowFailedError, Worker, take_turns
from bench_worker import Job, reason_of

from fairseq_compat import UserError

CASE = Case("training")


class Obedient:
    """Answers at once, and notes in a common list that it was its turn; fails at the turn that it is told."""

    def __init__(self, name: str, turns: list[str], fails_at: int = -1) -> None:
        self.name, self.turns, self.left = name, turns, fails_at
        self.closed = False

    def ask(self, message: Any) -> dict[str, Any]:
        assert message == CASE.as_numbers()
        if self.left == 0:
            raise RowFailedError("its process was killed")
        self.left -= 1
        self.turns.append(self.name)
        return {"seconds": float(len(self.turns)), "amount": 7, "steps": 0}

    def close(self) -> None:
        self.closed = True


def run(workers: dict[str, Any], rounds: int) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    failures: list[tuple[str, str]] = []
    found = take_turns(
        workers, CASE, rounds=rounds, warm_up=1, say=lambda *_: None,
        failed=lambda name, reason: failures.append((name, reason)),
    )  # fmt: skip
    return found, failures


def test_each_round_begins_with_the_next_row_and_the_warm_up_does_not_count() -> None:
    turns: list[str] = []
    found, failures = run({name: Obedient(name, turns) for name in "abc"}, rounds=3)
    assert "".join(turns) == "cab" + "abc" + "bca" + "cab"
    assert found["a"] == {"seconds": [4.0, 9.0, 11.0], "amount": [7, 7, 7], "steps": [0, 0, 0]}
    assert failures == []


def test_a_row_that_fails_is_taken_out_and_the_others_go_on() -> None:
    turns: list[str] = []
    failing = Obedient("b", turns, fails_at=2)
    workers: dict[str, Any] = {"a": Obedient("a", turns), "b": failing}
    found, failures = run(workers, rounds=3)
    assert failures == [("b", "its process was killed")]
    assert failing.closed
    assert list(workers) == list(found) == ["a"]
    assert len(found["a"]["seconds"]) == 3


def test_all_rows_fail() -> None:
    assert run({"a": Obedient("a", [], fails_at=0)}, rounds=2) == ({}, [("a", "its process was killed")])


def test_a_process_that_the_system_kills_is_a_row_that_failed() -> None:
    row, size = ROWS["stock 6"], SIZES["tiny"]
    job = Job(
        family=row.family, ours=row.is_ours, arch=row.arch, options=row.options(size), part="decoding",
        precision="fp32", device="cpu", vocabulary=size.vocabulary, train_tokens=50, batches=1,
    )  # fmt: skip
    worker = Worker(job)
    try:
        case = Case("decoding", beam=1, sentences=1)
        assert worker.ask(case.as_numbers())["amount"] == 1
        os.kill(worker._process.pid, signal.SIGKILL)
        with pytest.raises(RowFailedError, match="was killed, as the system does where memory runs out"):
            worker.ask(case.as_numbers())
    finally:
        worker.close()


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
