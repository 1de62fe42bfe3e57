"""``inspect``: the contents of a checkpoint, or of a folder that ``export --format safetensors`` wrote.

example:
  fairseq-depthwise inspect checkpoints/checkpoint_last.pt
  fairseq-depthwise inspect --json checkpoints/checkpoint_last.pt
"""

from __future__ import annotations

import argparse
import os

from fairseq_depthwise.checkpoints.recorded_paths import checkpoint_files, require_checkpoint
from fairseq_depthwise.commands.parsers import add_json
from fairseq_depthwise.tables import json_text, shown


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a checkpoint of fairseq, or a folder with one")
    add_json(parser)


def check(options: argparse.Namespace) -> None:
    if os.path.isdir(options.checkpoint):
        (options.checkpoint,) = checkpoint_files(options.checkpoint)
    require_checkpoint(options.checkpoint)


def run(options: argparse.Namespace) -> None:
    from fairseq_depthwise.checkpoints.checkpoint import Checkpoint
    from fairseq_depthwise.evaluation.checkpoint_summary import summarize

    path = options.checkpoint
    contents = summarize(Checkpoint.open(path).state, path)
    summary = {"file": path, "bytes": os.path.getsize(path), **contents}
    if options.json:
        # Recorded options may hold values that JSON does not have; they become text.
        print(json_text(summary, default=str))
        return

    # Values that the checkpoint does not record have no line.
    width = max(map(len, summary))
    for name, value in summary.items():
        text = shown(value)
        if text:
            print(f"{name.replace('_', ' '):{width}}  {text}")
