"""``grow``: a deeper checkpoint."""

from __future__ import annotations

import argparse
import json
from typing import Any

from fairseq_compat.outputs import output_file
from fairseq_depthwise.commands.parsers import add_parser, positive_int

#: As in ``growth.layer_sources``, which is not imported here: a help text need not wait for fairseq.
STRATEGIES = ("top-most", "top", "interpolation")


def add_to(subcommands: Any) -> None:
    parser = add_parser(
        subcommands,
        "grow",
        run=run,
        help="make the model of a checkpoint deeper by copying layers",
        example="fairseq-depthwise grow checkpoints/checkpoint_best.pt grown.pt --layers 12\n"
        "  fairseq-depthwise grow shallow.pt deep.pt --layers 8 --side decoder --strategy top",
    )
    parser.add_argument("input", metavar="IN", help="the checkpoint to start from")
    parser.add_argument("output", metavar="OUT", help="the checkpoint to write")
    parser.add_argument("--layers", type=positive_int, required=True, metavar="N", help="the new depth")
    parser.add_argument("--strategy", choices=STRATEGIES, default=STRATEGIES[0], help="which layers are copied")
    parser.add_argument("--side", choices=("encoder", "decoder"), default="encoder", help="which stack grows")
    parser.add_argument("--force", action="store_true", help="replace OUT if it exists")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace) -> int:
    from fairseq_depthwise.growth.grown_checkpoint import grow_checkpoint

    output = output_file("OUT", options.output, force=options.force, inputs=[options.input])
    grown = grow_checkpoint(options.input, output, options.layers, strategy=options.strategy, side=options.side)
    before, after = grown.parameters
    if options.json:
        print(
            json.dumps(
                {
                    "output": options.output,
                    "input": options.input,
                    "side": options.side,
                    "strategy": options.strategy,
                    "layers_before": grown.depth,
                    "layers": grown.layers,
                    "parameters_before": before,
                    "parameters": after,
                    "restarts_at": grown.updates,
                }
            )
        )
        return 0
    print(
        f"{options.output}: {options.side} of {options.input} grown from {grown.depth} to {grown.layers} layers "
        f"({options.strategy}), {before:,} to {after:,} parameters; training from it starts "
        f"with a fresh optimizer, and inverse_sqrt_restart restarts after update {grown.updates}"
    )
    return 0
