"""``gates``: what layers take from below, by a depth-wise LSTM or by the other connections over depth."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fairseq_compat import UserError
from fairseq_depthwise.commands.analysis.stack_reports import StackAnalysis, add_stack_options, write_stack_reports
from fairseq_depthwise.commands.parsers import add_parser

if TYPE_CHECKING:
    from fairseq_depthwise.analysis.loaded_model import LoadedModel
    from fairseq_depthwise.analysis.stacks.batches import StackBatch
    from fairseq_depthwise.analysis.stacks.connection_weights import SourceWeight


def add_to(subcommands: Any) -> None:
    parser = add_parser(
        subcommands,
        "gates",
        run=run,
        help="measure what layers take from below: the gates of depthwise_lstm_transformer models and the norms of "
        "their states, or the weights of what connects the layers of sdt_transformer models",
        example="fairseq-depthwise gates checkpoints/checkpoint_best.pt --data data-bin --output gates.png\n"
        "  fairseq-depthwise gates 6l.pt 12l.pt --data data-bin --side encoder --json",
    )
    models = "checkpoints of depthwise_lstm_transformer models, or of sdt_transformer models"
    add_stack_options(parser, models=models, side="both", drawn="gates and norms over the layers, or weights")


def run(options: argparse.Namespace) -> int:
    from fairseq_depthwise.analysis.loaded_model import load_trained
    from fairseq_depthwise.models.depthwise_lstm.cell import DepthwiseLSTMCell

    def load(path: str, sides: Sequence[str]) -> tuple[LoadedModel, StackAnalysis[Any]]:
        loaded = load_trained(path, options.data)
        layers = getattr(getattr(loaded.model, "encoder", None), "layers", ())  # other architectures have none
        cell = getattr(next(iter(layers), None), "cell", None)
        if cell is None:
            return loaded, _weights_of(loaded, sides)
        if not isinstance(cell, DepthwiseLSTMCell):
            raise UserError(f"{path} has the cells of --depthwise-cell rnn, which have no gates; give one with lstm")
        return loaded, _gates_of(loaded, sides)

    return write_stack_reports(options, load)


def _gates_of(loaded: LoadedModel, sides: Sequence[str]) -> StackAnalysis[Any]:
    from fairseq_depthwise.analysis.stacks.figures import write_gates
    from fairseq_depthwise.analysis.stacks.gate_statistics import measure_gates
    from fairseq_depthwise.analysis.stacks.report import gates_table

    return StackAnalysis("gates", functools.partial(measure_gates, loaded.model, sides), gates_table, write_gates)


def _weights_of(loaded: LoadedModel, sides: Sequence[str]) -> StackAnalysis[Any]:
    from fairseq_depthwise.analysis.stacks.connection_weights import has_weights, measure_weights
    from fairseq_depthwise.analysis.stacks.figures import write_source_weights
    from fairseq_depthwise.analysis.stacks.report import weights_table

    none = UserError(
        f"{loaded.path} is of the architecture {loaded.architecture}, with neither gates nor weights over depth in its "
        f"{' and '.join(sides)}; give a depthwise_lstm_transformer, or an sdt_transformer with connections"
    )
    if not any(has_weights(getattr(loaded.model, side, None)) for side in sides):
        raise none

    def measure(batches: Iterator[StackBatch]) -> dict[str, list[SourceWeight]]:
        found = measure_weights(loaded.model, sides, batches)
        if not any(found.values()):  # as value residuals of one layer
            raise none
        return found

    return StackAnalysis("weights", measure, weights_table, write_source_weights)
