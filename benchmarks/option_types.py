"""Values on the command lines of benchmarks, and the command line as it stands on a page."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from fairseq_compat import UserError
from fairseq_compat.outputs import output_file

#: Options that say where numbers or pages go, which nothing on the page depends on.
_DESTINATIONS = ("--json", "--docs")


def whole_number(at_least: int) -> Callable[[str], int]:
    """A parser of one option's value."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = at_least - 1
        if number < at_least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {at_least}")
        return number

    return parse


def positive_number(text: str) -> float:
    """A number above zero, whole or not."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def batch_sizes(text: str) -> list[int]:
    return [whole_number(1)(one) for one in text.split(",")]


def names_of(allowed: Sequence[str]) -> Callable[[str], list[str]]:
    """A parser of a list of names, separated by commas."""

    def parse(text: str) -> list[str]:
        names = list(dict.fromkeys(one.strip() for one in text.split(",")))
        for name in names:
            if name not in allowed:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(allowed)}")
        return names

    return parse


def fairseq_options(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be read: {error}") from None


def file_to_write(text: str) -> Path:
    """A file that is made or replaced; of a page that is there only one section may be."""
    try:
        return Path(output_file("the output", text, force=True))
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def page_to_write(program: str) -> Callable[[str], Path]:
    """A page that is written as a whole: a new one, or one that names the program, which made it."""

    def parse(text: str) -> Path:
        if text and not Path(text).parent.exists():
            return Path(text)  # perhaps in the folder of measurements, which will be made
        path = file_to_write(text)
        if path.exists() and program not in path.read_text(encoding="utf-8", errors="replace"):
            raise argparse.ArgumentTypeError(f"{text} exists and was not made by {program}; give another name")
        return path

    return parse


def existing_folder(text: str) -> Path:
    path = Path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is no folder; give one that exists")
    return path


def command_of(given: Sequence[str], program: str) -> str:
    """What was typed, with the variables that change how fast a CPU is: threads, and what malloc keeps.

    Left out is where the numbers and the page went.
    """
    variables = [f"{name}={os.environ[name]}" for name in sorted(os.environ) if name.startswith(("MALLOC_", "OMP_"))]
    shown = []
    before = ""
    for one in given:
        if before not in _DESTINATIONS and one.partition("=")[0] not in _DESTINATIONS:
            shown.append(one)
        before = one
    return shlex.join([*variables, "python", f"benchmarks/{program}", *shown])
