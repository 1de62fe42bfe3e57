"""Programs of ``benchmarks/`` as their users start them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from forked_python import ForkedPython

PROGRAMS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="session")
def run_benchmark(forked_python: ForkedPython) -> Callable[..., subprocess.CompletedProcess[str]]:
    """``run_benchmark(program, *options, forked=True)``: what it printed, and how it ended.

    With ``forked`` it is run in a fork, and so is what it starts. Programs whose processes are measured from
    their start need the real interpreter.
    """

    def run(program: str, *options: object, forked: bool = True) -> subprocess.CompletedProcess[str]:
        python = forked_python.python if forked else sys.executable
        return subprocess.run(
            [str(python), str(PROGRAMS / program), *map(str, options)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=480,
        )

    return run
