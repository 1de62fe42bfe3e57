"""``similarity``: how alike the outputs of a model's layers are."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from fairseq_depthwise.commands.parsers import add_data_options, add_forms, add_parser, add_side
from fairseq_depthwise.commands.progress import Progress
from fairseq_depthwise.commands.results import print_reports

if TYPE_CHECKING:
    from fairseq_depthwise.analysis.layer_similarity import LayerSimilarity
    from fairseq_depthwise.analysis.stack_report import StackReport


def add_to(subcommands: Any) -> None:
    parser = add_parser(
        subcommands,
        "similarity",
        run=run,
        help="measure how alike the outputs of a model's layers are: to the embedding, to the layer below, and to the "
        "mean of their sentence",
        example="fairseq-depthwise similarity 6l.pt 12l.pt 24l.pt --data data-bin --output similarity.pdf\n"
        "  fairseq-depthwise similarity checkpoints/checkpoint_best.pt --data data-bin --side both --csv",
    )
    parser.add_argument(
        "checkpoints", nargs="+", metavar="CHECKPOINT", help="models of this plugin, or transformers of fairseq's"
    )
    add_data_options(parser)
    add_side(parser, default="encoder")
    parser.add_argument("--output", metavar="FIGURE", help="draw the similarities: .png, .pdf or .svg")
    parser.add_argument("--force", action="store_true", help="replace a figure that exists")
    add_forms(parser)


def run(options: argparse.Namespace) -> int:
    from fairseq_depthwise.analysis import figures, stack_figures, stack_report, stack_tables
    from fairseq_depthwise.serving.saved_model import fairseq_warnings_only

    if options.output:
        figures.require_figure_path("--output", options.output, force=options.force)
    with fairseq_warnings_only():
        reports = [_look_at(path, options) for path in options.checkpoints]
    table = stack_tables.similarity_table
    print_reports(options, reports, as_json=stack_report.as_json, as_csv=stack_report.as_csv, as_text=table)
    if options.output:
        stack_figures.write_similarity(options.output, figures.titles_of(options.checkpoints), reports)
        print(f"{options.output} written", file=sys.stderr)
    return 0


def _look_at(path: str, options: argparse.Namespace) -> StackReport[LayerSimilarity]:
    from fairseq_depthwise.analysis.layer_similarity import measure_similarity
    from fairseq_depthwise.analysis.loaded_model import load_model
    from fairseq_depthwise.analysis.stack_batches import SIDES
    from fairseq_depthwise.analysis.stack_report import report_on

    print(f"reading {path}", file=sys.stderr)
    return report_on(
        load_model(path, options.data),
        measure_similarity,
        sides=SIDES if options.side == "both" else (options.side,),
        subset=options.subset,
        max_sentences=options.max_sentences,
        max_tokens=options.max_tokens,
        progress=Progress("batches"),
    )
