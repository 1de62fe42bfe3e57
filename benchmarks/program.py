"""What the programs of this folder share: values of options, progress on stderr, errors in one sentence."""

from __future__ import annotations

import argparse
import logging
import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from fairseq_compat import UserError
from fairseq_compat.explanations import explain
from fairseq_compat.process import keep_freed_memory

RECORDS = Path("docs/records")


def tell(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)


def run_program(
    name: str,
    parse: Callable[[Sequence[str]], argparse.Namespace],
    run: Callable[[argparse.Namespace, Sequence[str]], object],
    arguments: Sequence[str] | None,
    *,
    stopped: str = "stopped",
) -> int:
    """Do a program's work and return its exit status.

    Args:
        name: of the program, in front of errors.
        parse: the command line's parser.
        run: does the work; raises UserError or OSError where the user has to change something.
        arguments: of the command line; None: what was typed.
        stopped: what is printed after Ctrl-C.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parse(given)
    prepare_process()
    try:
        run(options, given)
    except (UserError, OSError) as error:
        tell(f"{name}: error: {explain(error) or error}")
        return 1
    except KeyboardInterrupt:
        tell(f"{name}: {stopped}")
        return 130
    return 0


def use_threads(number: int | None) -> None:
    """Let PyTorch compute with so many threads, here and in programs started from here; None changes nothing."""
    if number is not None:
        os.environ["OMP_NUM_THREADS"] = str(number)
        torch.set_num_threads(number)


def make_parser(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser with the option that every program has."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--records", type=folder_to_write, default=RECORDS, metavar="FOLDER", help="where the record"
        " of all numbers is written (default: %(default)s)")  # fmt: skip
    return parser


def check_device(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Choose a GPU where there is one and none was named; refuse one that does not exist."""
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("argument --device: PyTorch finds no GPU here, so cuda is not possible; give cpu")
    options.device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")


def prepare_process() -> None:
    """Do what a process that measures does first."""
    logging.getLogger("fairseq").setLevel(logging.ERROR)  # it logs much about every model it builds
    keep_freed_memory()  # as every command that computes on a CPU


# --- values of options --------------------------------------------------------------------------------------------


def integer(at_least: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from ``at_least`` on."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = at_least - 1
        if number < at_least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {at_least}")
        return number

    return parse


def positive(text: str) -> float:
    """Parse a number above zero."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def integers(text: str) -> list[int]:
    """Parse whole numbers from 1 on, with commas between them."""
    return [integer(1)(item) for item in text.split(",")]


def names_of(allowed: Sequence[str]) -> Callable[[str], list[str]]:
    """Return a parser of names with commas between them."""

    def parse(text: str) -> list[str]:
        names = list(dict.fromkeys(item.strip() for item in text.split(",")))
        for name in names:
            if name not in allowed:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(allowed)}")
        return names

    return parse


def fairseq_options(text: str) -> tuple[str, ...]:
    """Split options of fairseq as a shell does."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be read: {error}") from None


def record_name(text: str) -> str:
    """Parse the name of a record, a file in the folder of records."""
    if not re.fullmatch(r"[\w-]+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no name of a record; give letters, digits, _ and - only")
    return text


def folder_to_write(text: str) -> Path:
    """Parse a folder that exists or can be made in one that does."""
    path = Path(text)
    if not text or not (path.is_dir() or (path.parent.is_dir() and not path.exists())):
        raise argparse.ArgumentTypeError(f"{text!r} is no folder; give one that exists")
    return path
