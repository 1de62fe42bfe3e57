"""What the subcommands' parsers have in common."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any


class SubcommandParser(argparse.ArgumentParser):
    """Takes files after options as well as before them: ``translate best.pt --beam 5 text.en``."""

    _takes_options_first = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        positionals = self._get_positional_actions()
        if self._takes_options_first or any(one.nargs == argparse.REMAINDER for one in positionals):
            return super().parse_known_args(args, namespace)
        self._takes_options_first = True  # argparse comes back here, for the options and then for the rest
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._takes_options_first = False


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


def add_data_options(parser: argparse.ArgumentParser) -> None:
    """Which sentences a model is looked at with."""
    parser.add_argument("--data", required=True, metavar="BIN", help="the folder that fairseq-preprocess made")
    parser.add_argument("--subset", default="valid", metavar="NAME", help="part of the data (default: valid)")
    parser.add_argument(
        "--max-sentences", type=positive_int, default=1000, metavar="N",
        help="read the first N sentences (default: 1000)",
    )  # fmt: skip
    parser.add_argument(
        "--max-tokens", type=positive_int, default=4096, metavar="N",
        help="tokens in a batch; the result does not depend on it (default: 4096)",
    )  # fmt: skip


def add_side(parser: argparse.ArgumentParser, *, default: str) -> None:
    """Which of a model's stacks to look at."""
    parser.add_argument(
        "--side", choices=("encoder", "decoder", "both"), default=default,
        help=f"which stack; the decoder reads the reference (default: {default})",
    )  # fmt: skip


def add_forms(parser: argparse.ArgumentParser, *others: str) -> None:
    """``--json`` and ``--csv`` (or ``others``, as ``markdown``) in place of the table for people."""
    form = parser.add_mutually_exclusive_group()
    for name in ("json", *(others or ("csv",))):
        title = "Markdown" if name == "markdown" else name.upper()
        form.add_argument(f"--{name}", action="store_true", help=f"print the result as {title}")


def positive_int(text: str) -> int:
    """An argparse type: a whole number of at least 1."""
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return number
