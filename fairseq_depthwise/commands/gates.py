"""``gates``: gates and state norms of a depth-wise LSTM, or the weights of other connections over depth.

example:
  fairseq-depthwise gates checkpoints/checkpoint_best.pt --data data-bin --output gates.png
  fairseq-depthwise gates 6l.pt 12l.pt --data data-bin --side encoder --json
"""

from __future__ import annotations

import argparse

from fairseq_depthwise.commands.analysis_options import add_checkpoint_options, check_checkpoint_options


def add_to(parser: argparse.ArgumentParser) -> None:
    add_checkpoint_options(
        parser,
        models="depthwise_lstm_transformer models, or of sdt_transformer models",
        figure_shows="gates and norms over the layers, or weights",
        side="both",
    )
    parser.add_argument(
        "--ablate",
        action="store_true",
        help="beside each weight, how much the loss rises without its source; runs the data once more for each",
    )


def check(options: argparse.Namespace) -> None:
    check_checkpoint_options(options, "output")


def run(options: argparse.Namespace) -> None:
    from fairseq_depthwise.analysis.gates import report_gates

    report_gates(options)
