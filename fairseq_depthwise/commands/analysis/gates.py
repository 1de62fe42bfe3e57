"""``gates``: gates and state norms of depth-wise LSTM models."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fairseq_compat import UserError
from fairseq_depthwise.commands.analysis.stack_reports import Measure, add_stack_options, write_stack_reports
from fairseq_depthwise.commands.parsers import add_parser

if TYPE_CHECKING:
    from fairseq_depthwise.analysis.loaded_model import LoadedModel
    from fairseq_depthwise.analysis.stacks.gate_statistics import CellStatistics


def add_to(subcommands: Any) -> None:
    parser = add_parser(
        subcommands,
        "gates",
        run=run,
        help="measure the gates of depthwise_lstm_transformer models and the norms of their states",
        example="fairseq-depthwise gates checkpoints/checkpoint_best.pt --data data-bin --output gates.png\n"
        "  fairseq-depthwise gates 6l.pt 12l.pt --data data-bin --side encoder --json",
    )
    models = "checkpoints of depthwise_lstm_transformer models"
    add_stack_options(parser, models=models, side="both", drawn="gates and norms over the layers")


def run(options: argparse.Namespace) -> int:
    from fairseq_depthwise.analysis.loaded_model import load_model
    from fairseq_depthwise.analysis.stacks.figures import write_gates
    from fairseq_depthwise.analysis.stacks.gate_statistics import measure_gates
    from fairseq_depthwise.analysis.stacks.report import gates_table
    from fairseq_depthwise.models.depthwise_lstm.cell import DepthwiseLSTMCell

    def load(path: str, sides: Sequence[str]) -> tuple[LoadedModel, Measure[CellStatistics]]:
        loaded = load_model(path, options.data, family="depthwise_lstm_transformer")
        if not isinstance(loaded.model.encoder.layers[0].cell, DepthwiseLSTMCell):
            raise UserError(f"{path} has the cells of --depthwise-cell rnn, which have no gates; give one with lstm")
        return loaded, functools.partial(measure_gates, loaded.model, sides)

    return write_stack_reports(options, load, as_text=gates_table, draw=write_gates)
