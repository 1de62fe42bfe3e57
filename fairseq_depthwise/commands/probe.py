"""``probe``: how much a model's score drops when a linear layer replaces one of its layers.

example:
  fairseq-depthwise probe checkpoints/checkpoint_best.pt --data data-bin --output probe
  fairseq-depthwise probe depthwise.pt --data data-bin --output probe --compare transformer.pt
"""

from __future__ import annotations

import argparse

from fairseq_compat.outputs import begin_folder
from fairseq_depthwise.checkpoints.recorded_paths import require_checkpoint, require_data
from fairseq_depthwise.commands.analysis_options import add_data_options
from fairseq_depthwise.commands.parsers import add_json
from fairseq_depthwise.evaluation.scores import METRICS
from fairseq_depthwise.options import between, require_extra
from fairseq_depthwise.translation.translation_options import as_length_penalty


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "checkpoint", metavar="CHECKPOINT", help="a checkpoint of this plugin's families, or of fairseq's transformer"
    )
    add_data_options(parser, subset="test", about="part of the data to translate")
    parser.add_argument(
        "--output",
        required=True,
        metavar="DIR",
        help="folder for table, figure, linear layers, translations and checkpoints; repeat the command to continue",
    )
    parser.add_argument("--compare", metavar="OTHER", help="checkpoint of another model of the same data")
    parser.add_argument(
        "--layers", default="all", metavar="LIST", help="layers to replace, as encoder.1,decoder.6 (default: all)"
    )
    parser.add_argument(
        "--probe-state",
        choices=("both", "pair", "output"),
        default="both",
        help="what a depth-wise LSTM layer's replacement computes: the pair of output and cell, or the output, with "
        "the cell passed on (default: both, one after the other)",
    )
    parser.add_argument(
        "--max-tokens-used",
        type=between(0, 2**62, int),
        default=1_000_000,
        metavar="N",
        help="target tokens to fit on, chosen at random; 0 for all (default: 1000000)",
    )
    parser.add_argument(
        "--train-subset", default="train", metavar="NAME", help="part of the data to fit on (default: train)"
    )
    parser.add_argument("--beam", type=between(1, 10_000, int), default=4, metavar="N", help="beam size (default: 4)")
    parser.add_argument(
        "--lenpen", type=as_length_penalty, default=0.6, metavar="X", help="length penalty (default: 0.6)"
    )
    parser.add_argument(
        "--metric",
        choices=METRICS,
        default="tokenized",
        help="as in `fairseq-depthwise score`; sacrebleu for data that was not tokenized (default: tokenized)",
    )
    parser.add_argument("--cpu", action="store_true", help="do not use a GPU")
    parser.add_argument("--no-checkpoints", action="store_true", help="do not write a checkpoint for each row")
    parser.add_argument("--force", action="store_true", help="start again where DIR holds a probe with other settings")
    add_json(parser)


def check(options: argparse.Namespace) -> None:
    require_checkpoint(options.checkpoint)
    if options.compare:
        require_checkpoint(options.compare)
    require_data(options.data)
    require_extra("analysis", "matplotlib")
    begin_folder("--output", options.output, "probe")


def run(options: argparse.Namespace) -> None:
    from fairseq_depthwise.analysis.probe.probe import report_probes

    report_probes(options)
