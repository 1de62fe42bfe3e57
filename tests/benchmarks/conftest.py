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


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of a few made-up sentences; the name has to be quoted in a shell."""
    folder = tmp_path_factory.mktemp("text") / "made up"
    folder.mkdir()
    pairs = [(f"the {a} sees {b} cats", f"das {a} sieht {b} Katzen") for a in "abcdefghij" for b in "klmnopqrst"]
    for part, chosen in (("train", pairs), ("valid", pairs[:9]), ("test", pairs[::11])):
        for language, sentences in zip(("en", "de"), zip(*chosen, strict=True), strict=True):
            (folder / f"{part}.{language}").write_text(
                "".join(f"{sentence}.\n" for sentence in sentences), encoding="utf-8"
            )
    return folder
