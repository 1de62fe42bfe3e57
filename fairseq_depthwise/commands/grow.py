"""``grow``: a deeper checkpoint.

example:
  fairseq-depthwise grow checkpoints/checkpoint_best.pt grown.pt --layers 12
  fairseq-depthwise grow shallow.pt deep.pt --layers 8 --side decoder --strategy top
"""

from __future__ import annotations

import argparse
import json

from fairseq_compat.outputs import output_file
from fairseq_depthwise.checkpoints.recorded_paths import require_checkpoint
from fairseq_depthwise.commands.parsers import add_json, positive_int
from fairseq_depthwise.growth.freezing import FREEZES
from fairseq_depthwise.growth.layer_sources import INITS, STRATEGIES
from fairseq_depthwise.options import SIDES


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("input", metavar="IN", help="the checkpoint to start from")
    parser.add_argument("output", metavar="OUT", help="the checkpoint to write")
    parser.add_argument("--layers", type=positive_int, required=True, metavar="N", help="the new depth")
    for name, choices, help in (
        ("strategy", STRATEGIES, "where new layers are inserted and which layers they copy"),
        ("init", INITS, "how new layers start"),
        ("freeze", FREEZES, "the --growth-freeze of the training from OUT"),
        ("side", SIDES, "which stack grows"),
    ):
        parser.add_argument(f"--{name}", choices=choices, default=choices[0], help=f"{help} (default: {choices[0]})")
    parser.add_argument(
        "--seed", type=int, metavar="N", help="of layers that start anew (default: that of the training so far)"
    )
    parser.add_argument("--force", action="store_true", help="replace OUT if it exists")
    add_json(parser)


def check(options: argparse.Namespace) -> None:
    require_checkpoint(options.input)
    options.output = output_file("OUT", options.output, force=options.force, inputs=[options.input])


def run(options: argparse.Namespace) -> None:
    from fairseq_depthwise.checkpoints.checkpoint import Checkpoint
    from fairseq_depthwise.checkpoints.growing import grow_checkpoint

    checkpoint = Checkpoint.open(options.input)
    how = {name: getattr(options, name) for name in ("side", "strategy", "init")}
    grown = grow_checkpoint(checkpoint, options.layers, **how, frozen=options.freeze, seed=options.seed)
    grown.checkpoint.write(options.output)

    before, after = grown.parameters_before, grown.parameters
    if options.json:
        document = {
            "output": options.output,
            "input": options.input,
            **how,
            "freeze": options.freeze,
            "layers_before": grown.depth_before,
            "layers": options.layers,
            "restarts_at": checkpoint.updates,
            "parameters_before": before,
            "parameters": after,
        }
        print(json.dumps(document))
        return
    print(
        f"{options.output}: {options.side} of {options.input} grown from {grown.depth_before} to {options.layers} "
        f"layers ({options.strategy}), {before:,} to {after:,} parameters; training from it starts with a fresh "
        f"optimizer, and a schedule with restarts restarts after update {checkpoint.updates}"
    )
