"""``shortlist``: the lexical table with which ``translate --shortlist`` computes fewer scores.

example:
  fairseq-depthwise shortlist data-bin lexical.txt
  fairseq-depthwise translate checkpoints --compile --shortlist lexical.txt < new.en
"""

from __future__ import annotations

import argparse
import glob

from fairseq_compat.files import atomic_write
from fairseq_compat.outputs import output_file
from fairseq_depthwise.commands.parsers import positive_int


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "data", metavar="BIN", help="the folder with the training data, as fairseq-preprocess writes it"
    )
    parser.add_argument("output", metavar="OUT", help="the text file to write: target, source, P(target | source)")
    parser.add_argument("-s", "--source-lang", metavar="LANG", help="source language")
    parser.add_argument("-t", "--target-lang", metavar="LANG", help="target language")
    parser.add_argument(
        "--pairs", type=positive_int, default=100_000, metavar="N",
        help="learn from so many pairs of sentences, spread over the training data (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--force", action="store_true", help="replace OUT if it exists")


def run(options: argparse.Namespace) -> None:
    from fairseq.tasks.translation import TranslationConfig, TranslationTask

    from fairseq_depthwise.modules.decoding.shortlist import lexical_table

    read = [file for part in ("dict", "train") for file in glob.glob(f"{glob.escape(options.data)}/{part}.*")]
    output = output_file("OUT", options.output, force=options.force, inputs=read)
    config = TranslationConfig(
        data=options.data, source_lang=options.source_lang, target_lang=options.target_lang, dataset_impl=None
    )
    task = TranslationTask.setup_task(config)
    task.load_dataset("train")
    pairs = task.dataset("train")
    chosen = range(0, len(pairs), -(-len(pairs) // options.pairs) or 1)
    table = lexical_table((pairs.src[number], pairs.tgt[number]) for number in chosen)
    source, target = task.source_dictionary.symbols, task.target_dictionary.symbols
    with atomic_write(output) as file:
        for token, given, probability in table:
            file.write(f"{target[token]} {source[given]} {probability:.6f}\n".encode())
    print(f"{output}: {config.source_lang} to {config.target_lang}, from {len(chosen):,} pairs of {len(pairs):,}")
