"""What the subcommands have in common: parsers and their options, and reports in the requested form."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from fairseq_depthwise.options import positive_int as positive_int

Report = TypeVar("Report")


class SubcommandParser(argparse.ArgumentParser):
    """Accepts files after options as well as before them: ``translate best.pt --beam 5 text.en``."""

    _takes_options_first = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        positionals = self._get_positional_actions()
        if self._takes_options_first or any(action.nargs == argparse.REMAINDER for action in positionals):
            return super().parse_known_args(args, namespace)
        self._takes_options_first = True  # argparse calls this method again, for the options and then for the rest
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


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def add_languages(parser: argparse.ArgumentParser, *, source: str, target: str) -> None:
    """Add the options that name data and languages in place of those that the training recorded."""
    parser.add_argument("--data", metavar="BIN", help="the folder with the dictionaries")
    parser.add_argument("-s", "--source-lang", metavar="LANG", help=source)
    parser.add_argument("-t", "--target-lang", metavar="LANG", help=target)


def add_data_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose the sentences of an analysis."""
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
    """Add the option that chooses the stacks of an analysis."""
    parser.add_argument(
        "--side", choices=("encoder", "decoder", "both"), default=default,
        help=f"which stack; the decoder reads the reference (default: {default})",
    )  # fmt: skip


def add_forms(parser: argparse.ArgumentParser, *others: str) -> None:
    """Add ``--json`` and ``--csv`` (or ``others``, as ``markdown``) as alternatives to a table."""
    form = parser.add_mutually_exclusive_group()
    for name in ("json", *(others or ("csv",))):
        title = "Markdown" if name == "markdown" else name.upper()
        form.add_argument(f"--{name}", action="store_true", help=f"print the result as {title}")


def print_reports(
    options: argparse.Namespace,
    reports: Sequence[Report],
    *,
    as_json: Callable[[Report], dict[str, Any]],
    as_csv: Callable[[Sequence[Report]], str],
    as_text: Callable[[Report], str],
) -> None:
    """Print a report for each checkpoint in the form chosen with the options of :func:`add_forms`."""
    if options.json:
        print(json.dumps({"data": options.data, "checkpoints": list(map(as_json, reports))}, indent=2))
    elif options.csv:
        print(as_csv(reports), end="")
    else:
        print("\n".join(map(as_text, reports)), end="")
