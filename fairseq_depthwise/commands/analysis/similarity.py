"""``similarity``: cosine similarities of the outputs of a model's layers."""

from __future__ import annotations

import argparse
from typing import Any

from fairseq_depthwise.commands.analysis.stack_reports import StackAnalysis, add_stack_options, write_stack_reports
from fairseq_depthwise.commands.parsers import add_parser


def add_to(subcommands: Any) -> None:
    parser = add_parser(
        subcommands,
        "similarity",
        run=run,
        help="measure the cosine similarity of each layer's output to the embedding, to the layer below, and to the "
        "mean of its sentence",
        example="fairseq-depthwise similarity 6l.pt 12l.pt 24l.pt --data data-bin --output similarity.pdf\n"
        "  fairseq-depthwise similarity checkpoints/checkpoint_best.pt --data data-bin --side both --csv",
    )
    models = "checkpoints of this plugin's families, or of fairseq's own transformer"
    add_stack_options(parser, models=models, side="encoder", drawn="the similarities")


def run(options: argparse.Namespace) -> int:
    from fairseq_depthwise.analysis.loaded_model import load_model
    from fairseq_depthwise.analysis.stacks.figures import write_similarity
    from fairseq_depthwise.analysis.stacks.layer_similarity import measure_similarity
    from fairseq_depthwise.analysis.stacks.report import similarity_table

    analysis = StackAnalysis("similarity", measure_similarity, similarity_table, write_similarity)
    return write_stack_reports(options, lambda path, sides: (load_model(path, options.data), analysis))
