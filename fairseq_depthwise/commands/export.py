"""``export``: a model as ONNX files, which run without fairseq, or as weights.

example:
  fairseq-depthwise export checkpoints/average.pt exported
  python examples/exported/translate_onnx.py exported < test.bpe.en

Data and languages are those of the training; options name what has been moved, or one direction of many.
"""

from __future__ import annotations

import argparse
import json
import sys

from fairseq_depthwise.commands.parsers import add_json, add_languages
from fairseq_depthwise.options import add_options, options_of
from fairseq_depthwise.translation.translation_options import ExportOptions


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="the model, or a folder with a checkpoint_best.pt")
    parser.add_argument("output", metavar="OUT", help="the folder to write")
    add_languages(parser, source="source language", target="target language")
    add_options(parser, ExportOptions)
    add_json(parser)


def run(given: argparse.Namespace) -> None:
    from fairseq_depthwise.checkpoints.checkpoint import fairseq_warnings_only
    from fairseq_depthwise.translation.export import export

    with fairseq_warnings_only():
        config = export(
            given.checkpoint, given.output, options_of(ExportOptions, given),
            say=lambda sentence: print(sentence, file=sys.stderr),
        )  # fmt: skip
    if given.json:
        print(json.dumps(config))
        return
    languages = config["languages"]
    print(
        f"{given.output}: {config['architecture']} of {given.checkpoint}, {languages['source']} to "
        f"{languages['target']}, in {config['dtype']}" + (", compared with the model" if "functions" in config else "")
    )
