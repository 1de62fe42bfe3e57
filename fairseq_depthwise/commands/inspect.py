"""``inspect``: what a checkpoint holds, or a folder that ``export --format safetensors`` wrote.

example:
  fairseq-depthwise inspect checkpoints/checkpoint_last.pt
  fairseq-depthwise inspect --json checkpoints/checkpoint_last.pt
"""

from __future__ import annotations

import argparse
import json
import os

from fairseq_depthwise.commands.parsers import add_json
from fairseq_depthwise.tables import shown


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a checkpoint of fairseq, or a folder with one")
    add_json(parser)


def run(options: argparse.Namespace) -> None:
    from fairseq_depthwise.checkpoints.checkpoint import Checkpoint
    from fairseq_depthwise.checkpoints.recorded_paths import checkpoint_files
    from fairseq_depthwise.evaluation.checkpoint_summary import summarize

    path = options.checkpoint
    if os.path.isdir(path):
        (path,) = checkpoint_files(path)
    summary = summarize(Checkpoint.open(path).state, path)
    found = {"file": path, "bytes": os.path.getsize(path), **summary}
    if options.json:
        print(json.dumps(found, indent=2, default=str))
        return
    width = max(map(len, found))
    for name, value in found.items():
        if text := shown(value):
            print(f"{name.replace('_', ' '):{width}}  {text}")
