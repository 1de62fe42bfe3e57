"""What ``similarity`` and ``gates`` have in common: a report on the stacks of each checkpoint, printed and drawn."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from fairseq_depthwise.commands.parsers import add_data_options, add_forms, add_side
from fairseq_depthwise.commands.progress import Progress
from fairseq_depthwise.commands.results import print_reports

if TYPE_CHECKING:
    from fairseq_depthwise.analysis.loaded_model import LoadedModel
    from fairseq_depthwise.analysis.stacks.batches import StackBatch
    from fairseq_depthwise.analysis.stacks.report import StackReport

Row = TypeVar("Row")

#: Runs batches through a model and returns the rows of each side.
Measure = Callable[[Iterator["StackBatch"]], Mapping[str, Sequence[Row]]]


def add_stack_options(parser: argparse.ArgumentParser, *, models: str, side: str, drawn: str) -> None:
    """Options that both take.

    Args:
        parser: of the subcommand.
        models: what the checkpoints may be, in words.
        side: the stack that is looked at unless ``--side`` is given.
        drawn: what the figure shows, in words.
    """
    parser.add_argument("checkpoints", nargs="+", metavar="CHECKPOINT", help=models)
    add_data_options(parser)
    add_side(parser, default=side)
    parser.add_argument("--output", metavar="FIGURE", help=f"draw {drawn}: .png, .pdf or .svg")
    parser.add_argument("--force", action="store_true", help="replace a figure that exists")
    add_forms(parser)


def write_stack_reports(
    options: argparse.Namespace,
    load: Callable[[str, Sequence[str]], tuple[LoadedModel, Measure[Row]]],
    *,
    as_text: Callable[[StackReport[Row]], str],
    draw: Callable[[str, Sequence[str], Sequence[StackReport[Row]]], None],
) -> int:
    """Look at one checkpoint after the other, so that one model is in memory; print all reports, and draw them.

    Args:
        options: of :func:`add_stack_options`.
        load: a checkpoint's path and the sides to the model and what measures it.
        as_text: a report as a table.
        draw: writes the figure, from its path, a title for each checkpoint, and the reports.

    Returns:
        the command's exit status.

    Raises:
        UserError: the figure cannot be written, or a checkpoint not be loaded or measured.
    """
    from fairseq_depthwise import figures
    from fairseq_depthwise.analysis.stacks import batches as stack_batches
    from fairseq_depthwise.analysis.stacks import report as stack_report
    from fairseq_depthwise.checkpoints.checkpoint import fairseq_warnings_only

    sides = stack_batches.SIDES if options.side == "both" else (options.side,)

    def report_on(path: str) -> StackReport[Row]:
        print(f"reading {path}", file=sys.stderr)
        loaded, measure = load(path, sides)
        return stack_report.report_on(
            loaded,
            measure,
            sides=sides,
            subset=options.subset,
            max_sentences=options.max_sentences,
            max_tokens=options.max_tokens,
            progress=Progress("batches"),
        )

    output = options.output
    if output is not None:
        output = figures.figure_path("--output", output, force=options.force, inputs=options.checkpoints)
    with fairseq_warnings_only():
        reports = [report_on(path) for path in options.checkpoints]
    print_reports(options, reports, as_json=stack_report.as_json, as_csv=stack_report.as_csv, as_text=as_text)
    if output is not None:
        draw(output, figures.titles_of(options.checkpoints), reports)
        print(f"{output} written", file=sys.stderr)
    return 0
