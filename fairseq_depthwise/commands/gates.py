"""``gates``: what the cells of depth-wise LSTM models do."""

from __future__ import annotations

import argparse
import functools
import sys
from typing import TYPE_CHECKING, Any

from fairseq_compat import UserError
from fairseq_depthwise.commands.parsers import add_data_options, add_forms, add_parser, add_side
from fairseq_depthwise.commands.progress import Progress
from fairseq_depthwise.commands.results import print_reports

if TYPE_CHECKING:
    from fairseq_depthwise.analysis.gate_statistics import CellStatistics
    from fairseq_depthwise.analysis.stack_report import StackReport


def add_to(subcommands: Any) -> None:
    parser = add_parser(
        subcommands,
        "gates",
        run=run,
        help="measure how far the gates of depthwise_lstm_transformer models are open, and how long their states are",
        example="fairseq-depthwise gates checkpoints/checkpoint_best.pt --data data-bin --output gates.png\n"
        "  fairseq-depthwise gates 6l.pt 12l.pt --data data-bin --side encoder --json",
    )
    parser.add_argument(
        "checkpoints", nargs="+", metavar="CHECKPOINT", help="checkpoints of depthwise_lstm_transformer models"
    )
    add_data_options(parser)
    add_side(parser, default="both")
    parser.add_argument("--output", metavar="FIGURE", help="draw gates and norms over the layers: .png, .pdf or .svg")
    parser.add_argument("--force", action="store_true", help="replace a figure that exists")
    add_forms(parser)


def run(options: argparse.Namespace) -> int:
    from fairseq_depthwise.analysis import figures, stack_figures, stack_report, stack_tables
    from fairseq_depthwise.serving.saved_model import fairseq_warnings_only

    if options.output:
        figures.require_figure_path("--output", options.output, force=options.force)
    with fairseq_warnings_only():
        reports = [_look_at(path, options) for path in options.checkpoints]
    table = stack_tables.gates_table
    print_reports(options, reports, as_json=stack_report.as_json, as_csv=stack_report.as_csv, as_text=table)
    if options.output:
        stack_figures.write_gates(options.output, figures.titles_of(options.checkpoints), reports)
        print(f"{options.output} written", file=sys.stderr)
    return 0


def _look_at(path: str, options: argparse.Namespace) -> StackReport[CellStatistics]:
    from fairseq_depthwise.analysis.gate_statistics import measure_gates
    from fairseq_depthwise.analysis.loaded_model import load_model
    from fairseq_depthwise.analysis.stack_batches import SIDES
    from fairseq_depthwise.analysis.stack_report import report_on
    from fairseq_depthwise.modules.depthwise_cell import DepthwiseLSTMCell

    print(f"reading {path}", file=sys.stderr)
    loaded = load_model(path, options.data, family="depthwise_lstm_transformer")
    if not isinstance(loaded.model.encoder.layers[0].cell, DepthwiseLSTMCell):
        raise UserError(f"{path} has the cells of --depthwise-cell rnn, which have no gates; give a model with lstm")
    sides = SIDES if options.side == "both" else (options.side,)
    return report_on(
        loaded,
        functools.partial(measure_gates, loaded.model, sides),
        sides=sides,
        subset=options.subset,
        max_sentences=options.max_sentences,
        max_tokens=options.max_tokens,
        progress=Progress("batches"),
    )
