"""Options that the analyses of trained models have in common, and what is checked before a model is loaded."""

from __future__ import annotations

import argparse

from fairseq_depthwise.checkpoints.recorded_paths import require_checkpoint, require_data
from fairseq_depthwise.commands.parsers import add_json, positive_int
from fairseq_depthwise.figures import figure_path
from fairseq_depthwise.options import SIDES, require_extra


def add_data_options(parser: argparse.ArgumentParser, *, subset: str, about: str) -> None:
    """Add the options for the sentences that an analysis reads, and for its batches."""
    parser.add_argument("--data", required=True, metavar="BIN", help="the folder that fairseq-preprocess made")
    parser.add_argument("--subset", default=subset, metavar="NAME", help=f"{about} (default: {subset})")
    parser.add_argument(
        "--max-tokens",
        type=positive_int,
        default=4096,
        metavar="N",
        help="tokens in a batch; the result does not depend on it (default: 4096)",
    )


def add_checkpoint_options(
    parser: argparse.ArgumentParser, *, models: str, figure_shows: str, side: str | None = None
) -> None:
    """Add the options of an analysis that measures one checkpoint after the other.

    Args:
        parser: the subcommand's parser.
        models: which checkpoints it takes, for the help.
        figure_shows: what its figure shows, for the help.
        side: default of ``--side``; None for an analysis of encoders alone.
    """
    parser.add_argument("checkpoints", nargs="+", metavar="CHECKPOINT", help=f"checkpoints of {models}")
    add_data_options(parser, subset="valid", about="part of the data")
    parser.add_argument(
        "--max-sentences",
        type=positive_int,
        default=1000,
        metavar="N",
        help="read the first N sentences (default: 1000)",
    )
    parser.add_argument("--output", metavar="FIGURE", help=f"draw {figure_shows}: .png, .pdf or .svg")
    parser.add_argument("--force", action="store_true", help="replace a figure that exists")
    add_json(parser)
    # Analyses of encoders alone have no --side.
    parser.set_defaults(side="encoder")
    if side is not None:
        parser.add_argument(
            "--side",
            choices=(*SIDES, "both"),
            default=side,
            help=f"which stack; the decoder reads the reference (default: {side})",
        )


def check_checkpoint_options(options: argparse.Namespace, *figures: str) -> None:
    """Refuse checkpoints and data that are not there, and figures that cannot be written.

    ``figures``: the options that name a figure; a path that can be written takes its option's place.
    """
    for checkpoint in options.checkpoints:
        require_checkpoint(checkpoint)
    require_data(options.data)
    for name in figures:
        path = getattr(options, name)
        if path is None:
            continue
        option = f"--{name.replace('_', '-')}"
        setattr(options, name, figure_path(option, path, force=options.force, inputs=options.checkpoints))
        require_extra("analysis", "matplotlib")
