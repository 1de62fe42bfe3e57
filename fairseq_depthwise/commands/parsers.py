"""What the subcommands' parsers have in common."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any


def add_parser(
    subcommands: Any, name: str, *, run: Callable[[argparse.Namespace], int | None], help: str, example: str
) -> argparse.ArgumentParser:
    """Add a subcommand whose ``--help`` ends with an example."""
    parser: argparse.ArgumentParser = subcommands.add_parser(
        name,
        help=help,
        description=help[0].upper() + help[1:] + ".",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def positive_int(text: str) -> int:
    """An argparse type: a whole number of at least 1."""
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return number
