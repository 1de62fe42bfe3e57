"""``similarity``: of each layer's output to the embedding, to the layer below, and within a sentence.

example:
  fairseq-depthwise similarity 6l.pt 12l.pt 24l.pt --data data-bin --output similarity.pdf
  fairseq-depthwise similarity checkpoints/checkpoint_best.pt --data data-bin --side both --json
"""

from __future__ import annotations

import argparse

from fairseq_depthwise.commands.analysis_options import add_checkpoint_options, check_checkpoint_options


def add_to(parser: argparse.ArgumentParser) -> None:
    add_checkpoint_options(
        parser,
        models="this plugin's families, or of fairseq's own transformer",
        figure_shows="the similarities",
        side="encoder",
    )


def check(options: argparse.Namespace) -> None:
    check_checkpoint_options(options, "output")


def run(options: argparse.Namespace) -> None:
    from fairseq_depthwise.analysis.similarity import report_similarity

    report_similarity(options)
