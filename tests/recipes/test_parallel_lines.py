"""Lines through several processes: in order, read no faster than they are used, and no process stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import parallel_lines
import pytest
from parallel_lines import CHUNK, map_in_order

from fairseq_compat import UserError

LIB = Path(parallel_lines.__file__).parent

#: Sleeps in its processes, whose numbers it writes into a folder.
SLEEPER = """
import os, sys, time
from pathlib import Path
from parallel_lines import map_in_order
from recipe_step import run_step

def sleep(chunk):
    Path(sys.argv[1], str(os.getpid())).touch()
    time.sleep(float(sys.argv[2]))

run_step(lambda: list(map_in_order(sleep, range(100_000), 2, lambda: None)))
"""

_factors: list[int] = []


def _multiplied(chunk: list[int]) -> list[int]:
    time.sleep(0.01 * (chunk[0] // CHUNK % 3))
    return [_factors[0] * item for item in chunk]


@pytest.mark.parametrize("jobs", [0, 1, 3])
@pytest.mark.parametrize("count", [0, 1, 12 * CHUNK + 1])
def test_order(count: int, jobs: int) -> None:
    """Every process has what was prepared."""
    _factors.clear()
    chunks = map_in_order(_multiplied, range(count), jobs, lambda: _factors.append(2))
    assert [item for chunk in chunks for item in chunk] == [2 * item for item in range(count)]


def _fails(chunk: list[int]) -> None:
    if 2 * CHUNK in chunk:
        raise UserError("line 4,000 cannot be used")


@pytest.mark.parametrize("jobs", [1, 2])
def test_errors_come_back(jobs: int) -> None:
    with pytest.raises(UserError, match="line 4,000 cannot be used"):
        list(map_in_order(_fails, range(9 * CHUNK), jobs, lambda: None))


def test_reads_no_further_than_needed() -> None:
    read = 0

    def items() -> Iterator[int]:
        nonlocal read
        while True:
            read += 1
            yield read

    results = map_in_order(sum, items(), 2, lambda: None)
    for _ in range(5):
        next(results)
    results.close()
    assert read < 15 * CHUNK


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_no_process_stays_behind(number: signal.Signals, tmp_path: Path) -> None:
    """Killed, it takes its processes with it; Ctrl-C, which all of a terminal's processes get, ends it in one line."""
    process = subprocess.Popen(
        [sys.executable, "-c", SLEEPER, tmp_path, "60" if number == signal.SIGKILL else "1"],
        env={**os.environ, "PYTHONPATH": str(LIB)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 20
    while len(workers := [int(path.name) for path in tmp_path.iterdir()]) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    try:
        if number == signal.SIGKILL:
            process.kill()
        else:
            os.killpg(process.pid, number)
        message = process.communicate(timeout=20)[1]
        while alive := [worker for worker in workers if Path(f"/proc/{worker}").exists()]:
            assert time.monotonic() < deadline, f"{alive} are still there"
            time.sleep(0.01)
    finally:
        for worker in workers:
            if Path(f"/proc/{worker}").exists():
                os.kill(worker, signal.SIGKILL)
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert message == "-c: interrupted; run the same command again to go on\n"
