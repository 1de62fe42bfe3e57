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

from fairseq_compat import UserError
from fairseq_compat.outputs import output_folder
from fairseq_depthwise.checkpoints.recorded_paths import checkpoint_files
from fairseq_depthwise.commands.parsers import add_json, add_languages
from fairseq_depthwise.options import add_options, options_of, require_extra
from fairseq_depthwise.translation.export_formats import FORMATS, KIND
from fairseq_depthwise.translation.translation_options import ExportOptions


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="the model, or a folder with a checkpoint_best.pt")
    parser.add_argument("output", metavar="OUT", help="the folder to write")
    add_languages(parser, source="source language", target="target language")
    add_options(parser, ExportOptions)
    add_json(parser)


def check(arguments: argparse.Namespace) -> None:
    options = options_of(ExportOptions, arguments)
    extra = FORMATS[options.format].extra
    if extra:
        require_extra(*extra)
    # Refuse an output that cannot be written before reading the model.
    files = checkpoint_files(arguments.checkpoint)
    arguments.folder = output_folder("OUT", arguments.output, KIND, force=options.force, inputs=files)
    if len(files) > 1:
        raise UserError(f"{arguments.checkpoint} are {len(files)} checkpoints; export them one by one")
    arguments.file = files[0]


def run(arguments: argparse.Namespace) -> None:
    from fairseq_depthwise.checkpoints.checkpoint import Checkpoint, fairseq_warnings_only
    from fairseq_depthwise.translation.export import export

    options = options_of(ExportOptions, arguments)
    with fairseq_warnings_only():
        checkpoint = Checkpoint.open(arguments.file)
        config = export(checkpoint, arguments.folder, options, say=lambda sentence: print(sentence, file=sys.stderr))
    if arguments.json:
        print(json.dumps(config))
        return
    languages = config["languages"]
    print(
        f"{arguments.output}: {config['architecture']} of {arguments.checkpoint}, {languages['source']} to "
        f"{languages['target']}, in {config['dtype']}" + (", compared with the model" if "functions" in config else "")
    )
