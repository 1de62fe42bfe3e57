"""Tries the installation and fairseq's commands on all supported Pythons and writes a table: ``make matrix``.

For every row of the table: a fresh virtual environment, a regular ``pip install`` of a copy of the working tree,
fairseq, and a smoke test on the CPU (see :mod:`matrix_steps`). Everything is made in a temporary folder, which is
deleted at the end, however it ends. Progress goes to stderr and the table to stdout; the status is 1 if a cell failed,
2 for a wrong option.

    python tools/matrix.py --python 3.11
    python tools/matrix.py --row 3.10:torch=2.4.1,numpy=1.26.4,pip=23.0.1 --row 3.13 --output docs/matrix.md
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import itertools
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
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
PINS = ("torch", "numpy", "pip")

EXPLANATION = """\
# What runs on what

Each row is a fresh virtual environment: `pip install .` of this project (a regular wheel, not an editable one), then
`pip install --no-deps fairseq==0.12.2`, then the commands below on the CPU, with a copy task of 200 sentence pairs.
"Pinned" is what the row asked for; all else is pip's choice. The command below makes this page.

| column | what is done |
|---|---|
| install | the environment, the pip of the row, `pip install .` |
| fairseq | the installation of the unmodified fairseq 0.12.2, compiled here or taken from pip's cache of such builds |
| doctor | import of both packages, `fairseq-depthwise doctor` |
| preprocess | `fairseq-preprocess` with two workers |
| train, resume, generate | stock `transformer`: training, going on from `checkpoint_last.pt`, beam search |
| train dw, generate dw, interactive dw | same with `depthwise_lstm_transformer`; `fairseq-interactive` from stdin |
| bf16 | both architectures trained with `--bf16 --cpu` |
| uninstall | `pip uninstall fairseq-depthwise`; no package, command or start-up hook may be left |

"dw" is `depthwise_lstm_transformer`. One combination is known to fail, and pip refuses it: Python 3.13.0 cannot save a
checkpoint with PyTorch 2.5, because its `pickle` does not allow what `torch.save` does (CPython's issue gh-125631).
PyTorch 2.6 does it another way. PyTorch 2.5 on a later 3.13 is admitted and was not measured.
"""


class OptionError(Exception):
    """A wrong option, in one sentence."""


def parse_version(option: str, value: str) -> str:
    """A version as pip takes it after ``==``, or ``newest``."""
    if value != NEWEST and not re.fullmatch(r"\d+(\.\w+)*(\+[\w.]+)?", value):
        raise OptionError(f"{option} {value!r} is no version; give one like 2.4.1, or {NEWEST}")
    return value


def parse_python(option: str, value: str) -> str:
    if value not in PYTHONS:
        raise OptionError(f"{option} {value!r} is not a supported Python; give one of {', '.join(PYTHONS)}")
    return value


def parse_row(text: str) -> Row:
    """``3.10:torch=2.4.1,numpy=1.26.4,pip=23.0.1``; all after the Python version may be left out."""
    python, _, rest = text.partition(":")
    pins: dict[str, str] = {}
    for pin in filter(None, rest.split(",")):
        name, _, version = pin.partition("=")
        if name not in PINS or name in pins:
            raise OptionError(
                f"--row {text!r} has the pin {pin!r}; each of {', '.join(PINS)} can be given once, as =VERSION"
            )
        pins[name] = parse_version(f"--row {text!r}: {name}", version)
    return make_row(parse_python("--row", python), **pins)


def make_row(python: str, torch: str = "", numpy: str = "", pip: str = "") -> Row:
    """The newest torch and numpy are pip's choice anyway; the newest pip has to be asked for."""
    return Row(python, "" if torch == NEWEST else torch, "" if numpy == NEWEST else numpy, pip)


def rows_from(options: argparse.Namespace) -> list[Row]:
    """The rows that the options ask for: those of ``--row``, else every combination of the lists."""
    lists = {"--python": options.python, **{f"--{name}": getattr(options, name) for name in PINS}}
    if options.row:
        for option, value in lists.items():
            if value is not None:
                raise OptionError(
                    f"{option} {value!r} stands beside --row; put it into the rows, like 3.11:torch=2.5.1"
                )
        return [parse_row(text) for text in options.row]
    wanted = ",".join(PYTHONS) if options.python is None else options.python
    pythons = [parse_python("--python", one) for one in wanted.split(",")]
    pins = [
        [parse_version(f"--{name}", one) for one in given.split(",")] if given is not None else [""]
        for name, given in ((name, getattr(options, name)) for name in PINS)
    ]
    return [make_row(*combination) for combination in itertools.product(pythons, *pins)]


def candidates(python: str, path: str, pyenv: Path) -> Iterator[str]:
    """Files that may be the interpreter: on ``path``, then pyenv's, newest first."""
    for folder in path.split(os.pathsep):
        if folder and os.access(Path(folder) / f"python{python}", os.X_OK):
            yield str(Path(folder) / f"python{python}")
    versions = pyenv.glob(f"versions/{python}.*/bin/python{python}")
    yield from map(str, sorted(versions, key=lambda file: _numbers(file.parent.parent.name), reverse=True))


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def find_interpreter(python: str, path: str, pyenv: Path) -> str | None:
    """The first candidate that runs, is of that version and can make virtual environments, or None.

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
    except (OSError, subprocess.CalledProcessError) as error:
        raise OptionError("the matrix copies the files that git lists, and `git ls-files` fails here") from error
    for name in filter(None, done.stdout.split("\0")):
        if (PROJECT / name).is_file():  # a tracked file may have been deleted
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, target / name)


def as_table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns are aligned in the source as well."""
    widths = [max(len(line[column]) for line in [head, *lines]) for column in range(len(head))]

    def one(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"

    return "\n".join([one(head), "|" + "|".join("-" * (width + 2) for width in widths) + "|", *map(one, lines)])


def render(results: Sequence[Result]) -> str:
    """The table of versions, the table of steps, and the first line of every error."""
    environments, steps, errors = [], [], []
    for number, result in enumerate(results, start=1):
        found = [result.versions.get(name, "-") for name in ("python", *DISTRIBUTIONS)]
        # A Python that is not there has no exact version; the row still says which one was looked for.
        found[0] = found[0] if found[0] != "-" else result.row.python
        cells = [result.cells.get(step.name, NOT_RUN) for step in STEPS]
        environments.append([str(number), result.row.pins, *found])
        steps.append([str(number), found[0], *cells, f"{result.seconds:.0f} s"])
        errors += [f"- row {number}, {name}: `{line.replace('`', chr(39))}`" for name, line in result.errors.items()]
    tables = [
        as_table(["row", "pinned", "Python", *DISTRIBUTIONS], environments),
        as_table(["row", "Python", *(step.name for step in STEPS), "time"], steps),
    ]
    return "\n\n".join([*tables, *(["Errors:", "\n".join(errors)] if errors else [])]) + "\n"


def describe_machine() -> str:
    """The processor and the number of its cores that this process may use."""
    name = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {cores} cores, {platform.system()}"


def document(results: Sequence[Result], arguments: Sequence[str]) -> str:
    """The page that ``--output`` writes."""
    facts = [
        f"- date: {datetime.date.today().isoformat()}",
        f"- machine: {describe_machine()}",
        f"- command: `{without_places(shlex.join(['python', 'tools/matrix.py', *arguments]))}`",
    ]
    return "\n".join([EXPLANATION, *facts, "", render(results)])


def check_page(path: Path) -> None:
    """Raise :class:`OptionError` unless a page may be written there: a new one, or one that this program made."""
    if not path.resolve().parent.is_dir():
        raise OptionError(f"--output {path} is in a folder that does not exist; give one that does")
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise OptionError(f"--output {path} is no file; give the name of one")
    if path.exists() and "tools/matrix.py" not in path.read_text(encoding="utf-8", errors="replace"):
        raise OptionError(f"--output {path} exists and was not made by this program; give another name")


def write_whole(path: Path, text: str) -> None:
    """Write a file so that at every moment the old or the new one is there, whole."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)  # mkstemp's files are readable for their owner only
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


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
    parser.add_argument("--python", metavar="LIST", help=f"Python versions (default: {','.join(PYTHONS)})")
    for name in PINS:
        parser.add_argument(f"--{name}", metavar="LIST", help=f"versions of {name}, or {NEWEST}; a row for each")
    parser.add_argument("--row", action="append", metavar="ROW", help="a row, like 3.10:torch=2.4.1,numpy=1.26.4")
    parser.add_argument("--output", type=Path, metavar="FILE", help="also write the page with the table here")
    parser.add_argument("--quick", action="store_true", help="only install, import and doctor")
    parser.add_argument("--keep", action="store_true", help="keep the virtual environments")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = build_parser().parse_args(given)
    rows: list[Row] = []
    results: list[Result] = []
    # A request to end is to clean up as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        rows = rows_from(options)
        if options.output is not None:
            check_page(options.output)
        run_rows(rows, options, results)
    except OptionError as error:
        print(f"matrix: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        if results:
            print(render(results), end="")
        print(f"matrix: stopped after {len(results)} of {len(rows)} rows; no page was written", file=sys.stderr)
        return 130
    print(render(results), end="")
    if options.output is not None:
        write_whole(options.output, document(results, given))
    tried = any(result.versions for result in results)
    return 0 if tried and not any(result.failed for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
