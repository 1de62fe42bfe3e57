"""What the start-up hook of fairseq_compat costs every start of Python.

Two virtual environments are made that differ in nothing but the hook: one is empty, the other holds the package
``fairseq_compat`` and its line in site-packages. ``python -c pass`` is started in both by turns, and the difference
is taken between neighboring starts. A third environment whose hook file is an empty comment shows how much of it is
Python's reading of any such file. Writes the record ``startup_cost``.

    python benchmarks/startup_cost.py
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Sequence
from pathlib import Path

from program import integer, make_parser, run_program
from record import finish, setup_of
from turns import take_turns

import fairseq_compat
from fairseq_compat.import_hook import PatchingFinder

PACKAGE = Path(fairseq_compat.__file__).parent
HOOK = "fairseq_compat.pth"

#: The names of the environments in the table.
NOTHING, COMMENT, ACTIVE = "no hook", "a .pth file that does nothing", "the hook"


def make_environments(folder: Path) -> dict[str, Path]:
    """Make the three environments and return their interpreters."""
    interpreters = {}
    for number, name in enumerate((NOTHING, COMMENT, ACTIVE)):
        place = folder / str(number)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
        (site,) = (place / "lib").glob("python*/site-packages")
        if name == COMMENT:
            (site / HOOK).write_text("# nothing\n", encoding="utf-8")
        if name == ACTIVE:
            shutil.copytree(PACKAGE, site / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
            shutil.copy(PACKAGE.parent / HOOK, site / HOOK)
        interpreters[name] = place / "bin" / "python"
    return interpreters


def start(interpreter: Path, environment: dict[str, str]) -> float:
    """Return the milliseconds from starting ``python -c pass`` to its end."""
    begin = time.perf_counter()
    subprocess.run([interpreter, "-c", "pass"], check=True, env=environment, stdin=subprocess.DEVNULL)
    return 1000 * (time.perf_counter() - begin)


def measure(interpreters: dict[str, Path], rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds of each start."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def starts_of(interpreter: Path) -> Callable[[int], float]:
        return lambda _: start(interpreter, environment)

    works = {name: starts_of(interpreter) for name, interpreter in interpreters.items()}
    return take_turns(works, rounds=rounds, warm_up=5)  # the first start writes the compiled files


def finder_cost() -> float:
    """Return the microseconds that the finder adds to each import of another module."""
    finder, repeats = PatchingFinder(), 200_000
    return min(timeit.repeat(lambda: finder.find_spec("json"), number=repeats, repeat=5)) / repeats * 1e6


def run(options: argparse.Namespace, given: Sequence[str]) -> None:
    """Measure and write the record."""
    with tempfile.TemporaryDirectory() as folder:
        milliseconds = measure(make_environments(Path(folder)), options.rounds)
    setup = setup_of("startup_cost", given, rounds=options.rounds)
    record = {"setup": setup, "milliseconds": milliseconds, "import_microseconds": finder_cost()}
    finish(options.records, "startup_cost", record)


def parse_options(given: Sequence[str]) -> argparse.Namespace:
    """Parse the options."""
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=integer(2), default=300, help="starts of each (default: %(default)s)")
    return parser.parse_args(given)


def main(arguments: Sequence[str] | None = None) -> int:
    return run_program("startup_cost", parse_options, run, arguments)


if __name__ == "__main__":
    sys.exit(main())
