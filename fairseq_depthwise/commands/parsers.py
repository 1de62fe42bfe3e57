"""What the subcommands have in common: their parsers."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from fairseq_compat.commands.ranges import check_options


class SubcommandParser(argparse.ArgumentParser):
    """Accepts files after options as well as before them: ``translate best.pt --beam 5 text.en``."""

    _takes_options_first = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        positionals = self._get_positional_actions()
        if self._takes_options_first or any(action.nargs == argparse.REMAINDER for action in positionals):
            return super().parse_known_args(args, namespace)
        self._takes_options_first = True  # argparse calls this method again, for the options and then for the rest
        try:
            options, rest = self.parse_known_intermixed_args(args, namespace)
        finally:
            self._takes_options_first = False
        check_options(vars(options))
        return options, rest


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
    """Convert an option's value to an integer of at least 1."""
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return number
