"""Tries the installation and fairseq's commands on all supported Pythons and writes a table: ``make matrix``.

For every row of the table: a fresh virtual environment, a regular ``pip install`` of a copy of the working tree,
fairseq, and a smoke test on the CPU (see :mod:`matrix_steps`). Everything is made in a temporary folder, which is
deleted at the end, however it ends. Progress goes to stderr and the table to stdout, or between the markers of a page;
the status is 1 if a cell failed, 2 for a wrong option.

    python tools/matrix.py --row 3.11
    python tools/matrix.py --row 3.10:torch=2.4.1,numpy=1.26.4,pip=23.0.1 --row 3.13 --output docs/matrix.md
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from matrix_steps import (
    DISTRIBUTIONS,
    NEWEST,
    NOT_FOUND,
    NOT_RUN,
    STEPS,
    Result,
    Row,
    Workplace,
    run_row,
    without_places,
)

PROJECT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PROJECT))
from fairseq_compat.files import atomic_write  # noqa: E402  # found by the line above, without an installation
from fairseq_compat.process import processor_facts  # noqa: E402  # likewise

PYTHONS = ("3.10", "3.11", "3.12", "3.13")
PINS = ("torch", "numpy", "pip")

#: What a page has around the tables.
BEGIN, END = "<!-- tables -->\n", "<!-- end of tables -->\n"


def parse_row(text: str) -> Row:
    """Parse ``3.10:torch=2.4.1,numpy=1.26.4,pip=23.0.1``; all after the Python version may be left out."""
    python, _, rest = text.partition(":")
    if python not in PYTHONS:
        raise argparse.ArgumentTypeError(f"{python!r} is not a supported Python; give one of {', '.join(PYTHONS)}")
    pins: dict[str, str] = {}
    for pin in filter(None, rest.split(",")):
        name, _, version = pin.partition("=")
        if name not in PINS or name in pins:
            raise argparse.ArgumentTypeError(f"{pin!r}: each of {', '.join(PINS)} can be given once, as =VERSION")
        if version != NEWEST and not re.fullmatch(r"\d+(\.\w+)*(\+[\w.]+)?", version):
            raise argparse.ArgumentTypeError(f"{name} {version!r} is no version; give one like 2.4.1, or {NEWEST}")
        pins[name] = "" if version == NEWEST and name != "pip" else version  # the newest is pip's own choice
    return Row(python, **pins)


def parse_page(text: str) -> Path:
    """Parse the name of a page that has the markers."""
    path = Path(text)
    if not path.is_file() or path.is_symlink():
        raise argparse.ArgumentTypeError(f"{text!r} is no file; give a page such as docs/matrix.md")
    if not re.search(f"{BEGIN}.*{END}", path.read_text(encoding="utf-8", errors="replace"), re.DOTALL):
        raise argparse.ArgumentTypeError(f"{text!r} lacks the lines {BEGIN.strip()} and {END.strip()}")
    return path


def candidates(python: str, path: str, pyenv: Path) -> Iterator[str]:
    """Yield files that may be the interpreter: on ``path``, then pyenv's, newest first."""
    for folder in path.split(os.pathsep):
        if folder and os.access(Path(folder) / f"python{python}", os.X_OK):
            yield str(Path(folder) / f"python{python}")
    versions = pyenv.glob(f"versions/{python}.*/bin/python{python}")
    yield from map(str, sorted(versions, key=lambda file: _numbers(file.parent.parent.name), reverse=True))


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def find_interpreter(python: str, path: str, pyenv: Path) -> str | None:
    """Return the first candidate that runs, is of that version and can make virtual environments, or None.

    A file of the right name is not enough: pyenv's shims fail where no such version is chosen, and some systems ship
    Python without ensurepip.
    """
    code = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    for candidate in candidates(python, path, pyenv):
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run([candidate, "-c", code], capture_output=True, text=True, timeout=60, check=False)
            if done.returncode == 0 and done.stdout.strip() == python:
                return candidate
    return None


def copy_project(target: Path) -> None:
    """Copy what belongs to the project: tracked files, and new ones that git does not ignore."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(listing, cwd=PROJECT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        sys.exit("matrix: error: the matrix copies the files that git lists, and `git ls-files` fails here")
    for name in filter(None, done.stdout.split("\0")):
        if (PROJECT / name).is_file():  # a tracked file may have been deleted
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, target / name)


def as_table(lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the first line is its head."""
    rows = [f"| {' | '.join(cells)} |" for cells in lines]
    return "\n".join([rows[0], "|---" * len(lines[0]) + "|", *rows[1:]])


def render(results: Sequence[Result]) -> str:
    """Render the table of versions, the table of steps, and the first line of every error."""
    environments, steps, errors = [], [], []
    for number, result in enumerate(results, start=1):
        versions = [result.versions.get(name, "-") for name in ("python", *DISTRIBUTIONS)]
        # A Python that is not there has no exact version; the row still says which one was looked for.
        versions[0] = versions[0] if versions[0] != "-" else result.row.python
        cells = [result.cells.get(step.name, NOT_RUN) for step in STEPS]
        environments.append([str(number), result.row.pins, *versions])
        steps.append([str(number), versions[0], *cells, f"{result.seconds:.0f} s"])
        errors += [f"- row {number}, {name}: `{line.replace('`', chr(39))}`" for name, line in result.errors.items()]
    tables = [
        as_table([["row", "pinned", "Python", *DISTRIBUTIONS], *environments]),
        as_table([["row", "Python", *(step.name for step in STEPS), "time"], *steps]),
    ]
    return "\n\n".join([*tables, *(["Errors:", "\n".join(errors)] if errors else [])]) + "\n"


def describe_machine() -> str:
    """Return the processor and the number of its cores that this process may use."""
    name = processor_facts().get("model name") or platform.processor() or platform.machine()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {cores} cores, {platform.system()}"


def write_page(path: Path, results: Sequence[Result], arguments: Sequence[str]) -> None:
    """Put the tables, and what they were made with, between the markers of a page."""
    facts = [
        f"- date: {datetime.date.today().isoformat()}",
        f"- machine: {describe_machine()}",
        f"- command: `{without_places(shlex.join(['python', 'tools/matrix.py', *arguments]))}`",
    ]
    text = path.read_text(encoding="utf-8")
    before, after = text.split(BEGIN)[0], text.rsplit(END)[-1]
    with atomic_write(path) as file:
        file.write(f"{before}{BEGIN}\n{chr(10).join(facts)}\n\n{render(results)}{END}{after}".encode())


def run_rows(rows: Sequence[Row], options: argparse.Namespace, results: list[Result]) -> None:
    """Run the rows one after the other; each result is in ``results`` as soon as it is there."""
    begin = time.monotonic()
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    with contextlib.ExitStack() as stack:
        if options.keep:
            folder = Path(tempfile.mkdtemp(prefix="matrix-"))
            print(f"matrix: the environments stay in {folder}", file=sys.stderr)
        else:
            folder = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="matrix-", ignore_cleanup_errors=True))
            )
        # One copy for all rows: they are to try the same files even if somebody edits meanwhile.
        copy_project(folder / "project")
        for number, row in enumerate(rows, start=1):

            def say(text: str, number: int = number, row: Row = row) -> None:
                passed = time.monotonic() - begin
                print(f"[{passed:5.0f} s] row {number}/{len(rows)}, {row.python}: {text}", file=sys.stderr, flush=True)

            interpreter = find_interpreter(row.python, os.environ.get("PATH", ""), pyenv)
            if interpreter is None:
                say(NOT_FOUND)
                results.append(Result(row, {step.name: NOT_FOUND for step in STEPS}))
                continue
            say(f"pinned: {row.pins}; {shutil.disk_usage(folder).free / 1e9:.0f} GB free in {folder.parent}")
            here = folder / f"row-{number}"
            here.mkdir()
            try:
                results.append(run_row(Workplace(here, interpreter, folder / "project", row, say), options.quick))
            finally:
                if not options.keep:
                    say("deleting the environment ...")  # some seconds, for these are gigabytes
                    shutil.rmtree(here, ignore_errors=True)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Try the installation and fairseq's commands on all supported Pythons.",
        epilog="example: python tools/matrix.py --row 3.10:torch=2.4.1,pip=23.0.1 --row 3.13 --output docs/matrix.md",
    )
    parser.add_argument("--row", action="append", type=parse_row, metavar="ROW", help="a Python and what is pinned in"
        f" it, like 3.10:torch=2.4.1,pip={NEWEST} (default: a row for each of {', '.join(PYTHONS)})")  # fmt: skip
    parser.add_argument("--output", type=parse_page, metavar="PAGE", help="also put the tables into this page")
    parser.add_argument("--quick", action="store_true", help="only install, import and doctor")
    parser.add_argument("--keep", action="store_true", help="keep the virtual environments")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = build_parser().parse_args(given)
    rows = options.row or [Row(python) for python in PYTHONS]
    results: list[Result] = []
    # A request to end is to clean up as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        run_rows(rows, options, results)
    except KeyboardInterrupt:
        if results:
            print(render(results), end="")
        print(f"matrix: stopped after {len(results)} of {len(rows)} rows; no page was written", file=sys.stderr)
        return 130
    print(render(results), end="")
    if options.output is not None:
        write_page(options.output, results, given)
    tried = any(result.versions for result in results)
    return 0 if tried and not any(result.failed for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
