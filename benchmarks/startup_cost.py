"""What the start-up hook of fairseq_compat costs every start of Python.

Two virtual environments are made that differ in nothing but the hook: one is empty, the other holds the package
``fairseq_compat`` and its line in site-packages. ``python -c pass`` is started in both by turns, and the difference
is taken between neighboring starts, so that whatever else the machine is doing weighs on both alike. A third
environment whose hook file is an empty comment tells how much of it is Python's reading of any such file.

    python benchmarks/startup_cost.py --output docs/startup_cost.md
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from pathlib import Path

from machine import machine
from option_types import page_to_write

import fairseq_compat
from fairseq_compat.files import written_whole
from fairseq_compat.import_hook import PatchingFinder

PACKAGE = Path(fairseq_compat.__file__).parent
HOOK = "fairseq_compat.pth"

#: The names of the environments in the table.
NOTHING, COMMENT, ACTIVE = "no hook", "a .pth file that does nothing", "the hook"

#: Milliseconds that the hook may cost at most.
BAR = 2.0


def make_environments(folder: Path) -> dict[str, Path]:
    """The three environments' interpreters."""
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
    """Milliseconds from starting ``python -c pass`` to its end."""
    begin = time.perf_counter()
    subprocess.run([interpreter, "-c", "pass"], check=True, env=environment, stdin=subprocess.DEVNULL)
    return 1000 * (time.perf_counter() - begin)


def measure(interpreters: dict[str, Path], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each start; entry i of every list was measured in round i."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    for interpreter in interpreters.values():
        for _ in range(5):  # the first start writes the compiled files
            start(interpreter, environment)
    taken: dict[str, list[float]] = {name: [] for name in interpreters}
    names = list(interpreters)
    for number in range(rounds):
        # Rotate, so that no environment always starts after the same other one.
        for name in names[number % len(names) :] + names[: number % len(names)]:
            taken[name].append(start(interpreters[name], environment))
    return taken


def finder_cost() -> float:
    """Microseconds that the finder adds to each import of another module."""
    finder, repeats = PatchingFinder(), 200_000
    return min(timeit.repeat(lambda: finder.find_spec("json"), number=repeats, repeat=5)) / repeats * 1e6


def report(taken: dict[str, list[float]], per_import: float) -> str:
    """The tables as Markdown."""
    rounds = len(taken[NOTHING])
    lines = [
        "# What the start-up hook costs",
        "",
        "Made by `python benchmarks/startup_cost.py --output docs/startup_cost.md`: starts of `python -c pass` by",
        "turns in virtual environments that differ in the hook only. Differences are taken within each round.",
        "",
        f"Python {platform.python_version()}, {machine()}, {rounds} rounds.",
        "",
        "| environment | median ms | quartiles | fastest |",
        "|---|---|---|---|",
    ]
    for name, times in taken.items():
        low, middle, high = statistics.quantiles(times, n=4)
        lines.append(f"| {name} | {middle:.2f} | {low:.2f} - {high:.2f} | {min(times):.2f} |")
    lines += ["", "| compared with no hook | median ms | quartiles |", "|---|---|---|"]
    for name in (COMMENT, ACTIVE):
        low, middle, high = statistics.quantiles(differences(taken, name), n=4)
        lines.append(f"| {name} | {middle:+.2f} | {low:+.2f} - {high:+.2f} |")
    verdict = "below" if statistics.median(differences(taken, ACTIVE)) < BAR else "NOT below"
    lines += [
        "",
        f"The hook's median is {verdict} the bar of {BAR:g} ms. Each later import of a module that is not patched",
        f"takes {per_import:.2f} microseconds longer.",
        "",
    ]
    return "\n".join(lines)


def differences(taken: dict[str, list[float]], name: str) -> list[float]:
    """Milliseconds more than without a hook, round by round."""
    return [one - other for one, other in zip(taken[name], taken[NOTHING], strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=300, help="starts of each environment (default: %(default)s)")
    parser.add_argument(
        "--output",
        type=page_to_write("benchmarks/startup_cost.py"),
        metavar="FILE",
        help="write the tables here as well",
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        taken = measure(make_environments(Path(folder)), options.rounds)
    text = report(taken, finder_cost())
    print(text)
    if options.output:
        with written_whole(options.output) as file:
            file.write(text.encode())


if __name__ == "__main__":
    main()
