"""``units``: diversity, weights and attention of the units of multi-unit models.

example:
  fairseq-depthwise units checkpoints/checkpoint_best.pt --data data-bin --output weights.png
  fairseq-depthwise units mute.pt biased.pt --data data-bin --sentence-index 3 --attention-output maps.pdf
"""

from __future__ import annotations

import argparse

from fairseq_depthwise.commands.analysis_options import add_checkpoint_options, check_checkpoint_options
from fairseq_depthwise.options import between


def add_to(parser: argparse.ArgumentParser) -> None:
    add_checkpoint_options(parser, models="mute_transformer models", figure_shows="the weights of the units")
    parser.add_argument(
        "--include-self",
        action="store_true",
        help="compute diversity as the authors' program does: over all pairs of units, including those of a unit with "
        "itself, and of feed-forward outputs with their residual",
    )
    sentence = parser.add_mutually_exclusive_group()
    sentence.add_argument("--sentence", metavar="TEXT", help="a tokenized sentence for --attention-output")
    sentence.add_argument(
        "--sentence-index",
        type=between(0, 2**62, int),
        default=0,
        metavar="N",
        help="or one of the subset, counted from 0 as fairseq-generate does (default: 0)",
    )
    parser.add_argument("--attention-output", metavar="FIGURE", help="draw the attention of the units in the sentence")
    parser.add_argument("--layer", type=int, metavar="N", help="the layer of that figure (default: the last)")


def check(options: argparse.Namespace) -> None:
    check_checkpoint_options(options, "output", "attention_output")


def run(options: argparse.Namespace) -> None:
    from fairseq_depthwise.analysis.units import report_units

    report_units(options)
