"""``export``: a model as programs of ``torch.export``, which run without fairseq."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from fairseq_compat import UserError
from fairseq_compat.versions import fairseq_problem
from fairseq_depthwise.commands.parsers import add_parser


def add_to(subcommands: Any) -> None:
    parser = add_parser(
        subcommands,
        "export",
        run=run,
        help="export encoder and decoder step to torch.export, to be run without fairseq",
        example="fairseq-depthwise export checkpoints/average.pt exported\n"
        "  python examples/exported/translate.py exported < test.bpe.en\n\n"
        "Data and languages are those of the training; options name what has been moved, or one direction of many.",
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="the model, or a folder with a checkpoint_best.pt")
    parser.add_argument("output", metavar="OUT", help="the folder to write")
    parser.add_argument("--data", metavar="BIN", help="the folder with the dictionaries")
    parser.add_argument("-s", "--source-lang", metavar="LANG", help="source language")
    parser.add_argument("-t", "--target-lang", metavar="LANG", help="target language")
    parser.add_argument(
        "--format", choices=("torch", "onnx"), default="torch",
        help="programs of torch.export, or ONNX files for onnxruntime (default: torch)",
    )  # fmt: skip
    parser.add_argument("--int8", action="store_true", help="compute matrix products in int8, with --format onnx")
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16"), default="float32",
        help="of parameters and computation (default: float32)",
    )  # fmt: skip
    parser.add_argument("--force", action="store_true", help="replace OUT if it is an export")
    parser.add_argument("--json", action="store_true", help="print OUT's config.json")


def run(options: argparse.Namespace) -> int:
    if (problem := fairseq_problem()) is not None:
        raise UserError(problem)
    from fairseq_depthwise.checkpoints.checkpoint import fairseq_warnings_only
    from fairseq_depthwise.serving.export_folder import ExportOptions, export

    chosen = ExportOptions(
        data=options.data,
        source_lang=options.source_lang,
        target_lang=options.target_lang,
        format=options.format,
        dtype=options.dtype,
        int8=options.int8,
        force=options.force,
    )
    with fairseq_warnings_only():
        config = export(
            options.checkpoint, options.output, chosen, say=lambda sentence: print(sentence, file=sys.stderr)
        )
    if options.json:
        print(json.dumps(config))
        return 0
    languages = config["languages"]
    print(
        f"{options.output}: {config['architecture']} of {options.checkpoint}, {languages['source']} to "
        f"{languages['target']}, in {config['dtype']}, compared with the model"
    )
    return 0
