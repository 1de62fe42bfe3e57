"""What a module offers to be a subcommand, and the loop over checkpoints that most subcommands are."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairseq_depthwise import figures
from fairseq_depthwise.checkpoints.checkpoint import fairseq_warnings_only


@dataclass(frozen=True)
class Analysis:
    """A subcommand of the name of its module, in which it is called ``ANALYSIS``."""

    help: str
    example: str
    add_options: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], None]


def add_data_options(parser: argparse.ArgumentParser, *, subset: str, about: str) -> None:
    """Add the options of an analysis that say which sentences it reads, and in which batches."""
    parser.add_argument("--data", required=True, metavar="BIN", help="the folder that fairseq-preprocess made")
    parser.add_argument("--subset", default=subset, metavar="NAME", help=f"{about} (default: {subset})")
    parser.add_argument(
        "--max-tokens", type=int, default=4096, metavar="N",
        help="tokens in a batch; the result does not depend on it (default: 4096)",
    )  # fmt: skip


def add_checkpoint_options(parser: argparse.ArgumentParser, *, models: str, drawn: str) -> None:
    """Add the options of an analysis that measures one checkpoint after the other."""
    parser.add_argument("checkpoints", nargs="+", metavar="CHECKPOINT", help=f"checkpoints of {models}")
    add_data_options(parser, subset="valid", about="part of the data")
    parser.add_argument(
        "--max-sentences", type=int, default=1000, metavar="N", help="read the first N sentences (default: 1000)"
    )
    parser.add_argument("--output", metavar="FIGURE", help=f"draw {drawn}: .png, .pdf or .svg")
    parser.add_argument("--force", action="store_true", help="replace a figure that exists")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def report_checkpoints(
    options: argparse.Namespace,
    measure: Callable[[str], Any],
    as_text: Callable[[Any], str],
    drawings: Mapping[str, Callable[[str, Sequence[str], Sequence[Any]], None]],
) -> None:
    """Measure one checkpoint after the other, so that one model is in memory; print and draw the reports.

    ``measure`` returns the report on a path, whose ``document`` is an object of JSON. ``drawings``: option that names a
    figure -> what draws the reports, with a title each, into it.
    """
    paths = {}
    for name in drawings:
        if (path := getattr(options, name)) is not None:
            option = f"--{name.replace('_', '-')}"
            paths[name] = figures.figure_path(option, path, force=options.force, inputs=options.checkpoints)
    reports = []
    with fairseq_warnings_only():
        for checkpoint in options.checkpoints:
            print(f"reading {checkpoint}", file=sys.stderr)
            reports.append(measure(checkpoint))
    if options.json:
        documents = [report.document() for report in reports]
        print(json.dumps({"data": options.data, "checkpoints": documents}, indent=2))
    else:
        print("\n".join(map(as_text, reports)), end="")
    for name, path in paths.items():
        drawings[name](path, figures.titles_of(options.checkpoints), reports)
        print(f"{path} written", file=sys.stderr)
