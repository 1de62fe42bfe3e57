"""``average``: the mean of checkpoints.

example:
  fairseq-depthwise average --output checkpoints/average.pt --last 5 checkpoints
  fairseq-depthwise average --output average.pt run1/checkpoint_best.pt run2/checkpoint_best.pt
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys

from fairseq_compat import UserError
from fairseq_compat.outputs import output_file
from fairseq_depthwise.checkpoints.recorded_paths import WEIGHTS, require_checkpoint
from fairseq_depthwise.commands.parsers import add_json, positive_int


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("inputs", nargs="+", metavar="DIR | FILE", help="a folder with --last or --best, or the files")
    parser.add_argument("--output", required=True, metavar="OUT", help="the checkpoint to write")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--last", type=positive_int, metavar="N", help="the N newest checkpoints of the folder, or all")
    which.add_argument(
        "--best", type=positive_int, metavar="N", help="the N best that --keep-best-checkpoints of fairseq-train kept"
    )
    parser.add_argument("--metric", metavar="M", help="with --best: by which metric, if there are several")
    parser.add_argument("--force", action="store_true", help="replace OUT if it exists")
    add_json(parser)


def check(options: argparse.Namespace) -> None:
    # Fails before minutes of reading.
    options.output = output_file("--output", options.output, force=options.force)
    paths = options.inputs
    if options.metric and not options.best:
        raise UserError(f"--metric {options.metric} chooses among the best checkpoints of a folder; add --best N")
    if options.last or options.best:
        if len(paths) != 1 or not os.path.isdir(paths[0]):
            raise UserError(f"--last and --best take one folder of checkpoints, and {' '.join(paths)} is not one")
        return
    for path in paths:
        if os.path.isfile(os.path.join(path, WEIGHTS)):
            raise UserError(f"{path} was exported; average the checkpoints, and export their mean")
        if os.path.isdir(path):
            raise UserError(f"{path} is a folder; add --last N or --best N, or name the checkpoints")
        require_checkpoint(path)


def run(options: argparse.Namespace) -> None:
    from fairseq_depthwise.checkpoints import averaging
    from fairseq_depthwise.checkpoints.checkpoint import Checkpoint

    # Choosing the last or best opens some of the files that are then averaged.
    open_once = functools.cache(Checkpoint.open)
    paths = options.inputs
    wanted = options.last or options.best
    if options.last:
        paths = averaging.last_checkpoints(paths[0], options.last, open_once)
    elif options.best:
        paths = averaging.best_checkpoints(paths[0], options.best, options.metric, open_once)
    if wanted and len(paths) < wanted:
        print(f"{options.inputs[0]} has {len(paths)} of the {wanted} checkpoints; taking all", file=sys.stderr)
    # Check again now that the inputs are known: even with --force, the output must not replace one of them.
    output_file("--output", options.output, force=True, inputs=map(str, paths))

    checkpoints = list(map(open_once, paths))
    mean = averaging.average(checkpoints, progress=lambda path: print(f"reading {path}", file=sys.stderr))
    mean.write(options.output)
    if options.json:
        print(json.dumps({"output": options.output, "inputs": [str(path) for path in paths]}))
    else:
        print(f"{options.output}: the mean of {len(paths)} checkpoints: {', '.join(map(str, paths))}")
