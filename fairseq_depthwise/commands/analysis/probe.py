"""``probe``: the linearization probe, which replaces each layer by a linear layer."""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
from typing import Any

from fairseq_compat import UserError
from fairseq_depthwise.commands.parsers import add_forms, add_parser, positive_int


def add_to(subcommands: Any) -> None:
    parser = add_parser(
        subcommands,
        "probe",
        run=run,
        help="replace each layer of a trained model by a linear layer, and measure the loss in BLEU",
        example="fairseq-depthwise probe checkpoints/checkpoint_best.pt --data data-bin --output probe\n"
        "  fairseq-depthwise probe depthwise.pt --data data-bin --output probe --compare transformer.pt",
    )
    parser.add_argument(
        "checkpoint", metavar="CHECKPOINT", help="a checkpoint of this plugin's families, or of fairseq's transformer"
    )
    parser.add_argument("--data", required=True, metavar="BIN", help="the folder that fairseq-preprocess made")
    parser.add_argument(
        "--output", required=True, metavar="DIR",
        help="folder for table, figure, linear layers, translations and checkpoints; repeat the command to continue",
    )  # fmt: skip
    parser.add_argument("--compare", metavar="OTHER", help="checkpoint of another model of the same data")
    parser.add_argument(
        "--layers", default="all", metavar="LIST", help="layers to replace, as encoder.1,decoder.6 (default: all)"
    )
    parser.add_argument(
        "--probe-state", choices=("both", "pair", "output"), default="both",
        help="what a depth-wise LSTM layer's replacement computes: the pair of output and cell, or the output, with "
        "the cell passed on (default: both, one after the other)",
    )  # fmt: skip
    parser.add_argument(
        "--max-tokens-used", type=_count, default=1_000_000, metavar="N",
        help="target tokens to fit on, chosen at random; 0 for all (default: 1000000)",
    )  # fmt: skip
    parser.add_argument(
        "--train-subset", default="train", metavar="NAME", help="part of the data to fit on (default: train)"
    )
    parser.add_argument(
        "--subset", default="test", metavar="NAME", help="part of the data to translate (default: test)"
    )
    parser.add_argument("--beam", type=positive_int, default=4, metavar="N", help="beam size (default: 4)")
    parser.add_argument("--lenpen", type=float, default=0.6, metavar="X", help="length penalty (default: 0.6)")
    parser.add_argument(
        "--max-tokens", type=positive_int, default=4096, metavar="N", help="tokens in a batch (default: 4096)"
    )
    parser.add_argument(
        "--post-process", choices=("subword_nmt", "sentencepiece"),
        help="conversion of subwords to words (default: guessed from the dictionary)",
    )  # fmt: skip
    parser.add_argument(
        "--metric", choices=("tokenized", "tokenized-lc", "compound-split", "sacrebleu", "chrf"), default="tokenized",
        help="as in `fairseq-depthwise score`; sacrebleu for data that was not tokenized (default: tokenized)",
    )  # fmt: skip
    parser.add_argument("--tokenize", default="13a", metavar="NAME", help="sacreBLEU's tokenizer (default: 13a)")
    parser.add_argument(
        "--processes", type=positive_int, default=1, metavar="N", help="processes, one for each GPU (default: 1)"
    )
    parser.add_argument("--cpu", action="store_true", help="do not use GPUs")
    parser.add_argument("--no-checkpoints", action="store_true", help="do not write a checkpoint for each row")
    parser.add_argument("--force", action="store_true", help="start again where DIR holds a probe with other settings")
    add_forms(parser)


def run(options: argparse.Namespace) -> int:
    from fairseq_compat.files import atomic_write
    from fairseq_compat.outputs import working_folder
    from fairseq_depthwise.analysis.probe import report as probe_report
    from fairseq_depthwise.analysis.probe.probe import prepare, probe
    from fairseq_depthwise.analysis.probe.record import PROBE_KIND
    from fairseq_depthwise.analysis.probe.workers import ProbeOptions
    from fairseq_depthwise.checkpoints.checkpoint import fairseq_warnings_only
    from fairseq_depthwise.figures import require_matplotlib, titles_of

    require_matplotlib("probe")
    checkpoints = [options.checkpoint, *([options.compare] if options.compare else [])]
    if options.compare and os.path.realpath(options.compare) == os.path.realpath(options.checkpoint):
        raise UserError(f"--compare {options.compare} is the model itself; give another one")
    settings = ProbeOptions(
        data=options.data,
        layers=options.layers,
        states=("pair", "output") if options.probe_state == "both" else (options.probe_state,),
        train_subset=options.train_subset,
        max_tokens_used=options.max_tokens_used,
        max_tokens=options.max_tokens,
        subset=options.subset,
        beam=options.beam,
        length_penalty=options.lenpen,
        post_process=options.post_process,
        metric=options.metric,
        tokenize=options.tokenize,
        checkpoints=not options.no_checkpoints,
        processes=options.processes,
        cpu=options.cpu,
    )
    working_folder("--output", options.output, PROBE_KIND)
    folders = (options.output, os.path.join(options.output, "compared"))
    models = []
    with fairseq_warnings_only():
        prepared = [prepare(path, settings) for path in checkpoints]
        records = [ready.open(folder, force=options.force) for ready, folder in zip(prepared, folders, strict=False)]
        for ready, record in zip(prepared, records, strict=True):
            print(f"probing {ready.checkpoint}", file=sys.stderr)
            models.append(probe(ready, record, functools.partial(print, file=sys.stderr)))

    document = {"data": options.data, "models": list(map(probe_report.as_json, models))}
    forms = {
        "table.txt": probe_report.as_text(models),
        "table.json": json.dumps(document, indent=2) + "\n",
        "table.csv": probe_report.as_csv(models),
    }
    for name, text in forms.items():
        with atomic_write(os.path.join(options.output, name)) as file:
            file.write(text.encode())
    for form in ("svg", "pdf", "png"):
        probe_report.write_probe(os.path.join(options.output, f"figure.{form}"), models, titles_of(checkpoints))
    print(forms["table.json" if options.json else "table.csv" if options.csv else "table.txt"], end="")
    print(f"table and figure are in {options.output}", file=sys.stderr)
    return 0


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)
