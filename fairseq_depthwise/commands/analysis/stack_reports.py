"""What ``similarity`` and ``gates`` have in common: a report on the stacks of each checkpoint, printed and drawn."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from fairseq_compat import UserError
from fairseq_depthwise.commands.parsers import add_data_options, add_forms, add_side, print_reports

if TYPE_CHECKING:
    from fairseq_depthwise.analysis.loaded_model import LoadedModel
    from fairseq_depthwise.analysis.stacks.batches import StackBatch
    from fairseq_depthwise.analysis.stacks.report import StackReport

Row = TypeVar("Row")


@dataclass(frozen=True)
class StackAnalysis(Generic[Row]):
    """What is done with one kind of models.

    Attributes:
        kind: what is measured; checkpoints of one command have one.
        measure: runs batches through a model and returns the rows of each side.
        as_text: returns a report as a table.
        draw: writes the figure, from its path, a title for each checkpoint, and the reports.
    """

    kind: str
    measure: Callable[[Iterator[StackBatch]], Mapping[str, Sequence[Row]]]
    as_text: Callable[[StackReport[Row]], str]
    draw: Callable[[str, Sequence[str], Sequence[StackReport[Row]]], None]


def add_stack_options(parser: argparse.ArgumentParser, *, models: str, side: str, drawn: str) -> None:
    """Add the options of both subcommands."""
    parser.add_argument("checkpoints", nargs="+", metavar="CHECKPOINT", help=models)
    add_data_options(parser)
    add_side(parser, default=side)
    parser.add_argument("--output", metavar="FIGURE", help=f"draw {drawn}: .png, .pdf or .svg")
    parser.add_argument("--force", action="store_true", help="replace a figure that exists")
    add_forms(parser)


def write_stack_reports(
    options: argparse.Namespace,
    load: Callable[[str, Sequence[str]], tuple[LoadedModel, StackAnalysis[Row]]],
) -> int:
    """Measure one checkpoint after the other, so that one model is in memory; print all reports, and draw them.

    Args:
        options: of :func:`add_stack_options`.
        load: returns the model of a checkpoint and what is done with it, from the path and the sides.

    Returns:
        the command's exit status.

    Raises:
        UserError: the figure cannot be written, a checkpoint cannot be loaded or measured, or the kinds differ.
    """
    from fairseq_depthwise import figures
    from fairseq_depthwise.analysis.stacks import batches as stack_batches
    from fairseq_depthwise.analysis.stacks import report as stack_report
    from fairseq_depthwise.checkpoints.checkpoint import fairseq_warnings_only

    sides = stack_batches.SIDES if options.side == "both" else (options.side,)
    output = options.output
    if output is not None:
        output = figures.figure_path("--output", output, force=options.force, inputs=options.checkpoints)
    read = {"subset": options.subset, "max_sentences": options.max_sentences, "max_tokens": options.max_tokens}
    reports: list[StackReport[Row]] = []
    first: StackAnalysis[Row] | None = None
    with fairseq_warnings_only():
        for path in options.checkpoints:
            print(f"reading {path}", file=sys.stderr)
            loaded, analysis = load(path, sides)
            first = first or analysis
            if analysis.kind != first.kind:
                raise UserError(
                    f"{path} is of the architecture {loaded.architecture}, of which {analysis.kind} are shown, and "
                    f"{options.checkpoints[0]} has {first.kind}; give them in two commands"
                )
            reports.append(stack_report.report_on(loaded, analysis.measure, sides=sides, **read))
    assert first is not None
    print_reports(options, reports, as_json=stack_report.as_json, as_csv=stack_report.as_csv, as_text=first.as_text)
    if output is not None:
        first.draw(output, figures.titles_of(options.checkpoints), reports)
        print(f"{output} written", file=sys.stderr)
    return 0
