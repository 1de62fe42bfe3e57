"""``prepare``: from raw parallel text to a folder for ``train``.

The folder also has text.json, from which train, translate and the others know the tokenizer and the subwords, and
commands.sh, which does the same by hand. A preparation that was interrupted goes on with the same command.

example:
  fairseq-depthwise prepare --source-lang en --target-lang sv --train corpus/train --valid corpus/valid \
    --test corpus/test data-bin
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from typing import Any

from fairseq_compat import UserError
from fairseq_depthwise.commands.parsers import add_json, positive_int
from fairseq_depthwise.preparation.folder import prepare
from fairseq_depthwise.preparation.settings import SUBWORDS, TOKENIZERS, Settings, find_parts, require_languages
from fairseq_depthwise.tables import aligned, json_text

#: Operations of BPE, or entries of SentencePiece, unless --merges says otherwise.
_MERGES = 8000


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", metavar="DATA", help="the folder to make, such as data-bin")
    parser.add_argument("-s", "--source-lang", required=True, metavar="LANG", help="source language, such as en")
    parser.add_argument("-t", "--target-lang", required=True, metavar="LANG", help="target language")
    texts = parser.add_argument_group(
        "texts", "the beginning of the names of two files, which end in .LANG, .LANG.gz or .LANG.xz"
    )
    texts.add_argument("--train", required=True, metavar="PREFIX", help="such as corpus/train for corpus/train.en")
    texts.add_argument(
        "--valid", metavar="PREFIX", help="validation text (default: pairs that are taken from the training text)"
    )
    texts.add_argument(
        "--test", metavar="PREFIX", action="append", default=[], help="test text; may be given several times"
    )
    parser.add_argument(
        "--subwords", choices=tuple(SUBWORDS), default="bpe", help="what words are split into (default: %(default)s)"
    )
    parser.add_argument(
        "--merges",
        type=positive_int,
        metavar="N",
        help=f"merge operations of bpe, or entries of sentencepiece's vocabulary (default: {_MERGES})",
    )
    parser.add_argument(
        "--tokenizer",
        choices=tuple(TOKENIZERS),
        help="moses-dashes also splits words at dashes, as fairseq's own does (default: moses, but none for "
        "sentencepiece)",
    )
    parser.add_argument(
        "--separate-dictionaries", action="store_true", help="one dictionary for each language (default: one for both)"
    )
    parser.add_argument(
        "--clean",
        type=_limits,
        metavar="RATIO,LENGTH",
        default=(0.0, 0),
        help="drop training pairs with more than LENGTH tokens on a side, or RATIO times as many as on the other, such "
        "as 1.5,250",
    )
    parser.add_argument("--workers", type=positive_int, metavar="N", help="processes (default: one for each processor)")
    add_json(parser)


def run(options: argparse.Namespace) -> None:
    place = options.data.rstrip("/") or options.data
    for mark in ",:":
        if mark in os.path.realpath(place):
            raise UserError(f"DATA {options.data!r}: fairseq divides lists of folders at {mark!r}; give another name")
    if options.merges and options.subwords == "none":
        raise UserError(f"--merges {options.merges} has no effect with --subwords none; leave it out")
    ratio, longest = options.clean
    settings = Settings(
        languages=require_languages(options.source_lang, options.target_lang),
        tokenizer=options.tokenizer or ("none" if options.subwords == "sentencepiece" else "moses"),
        subwords=options.subwords,
        merges=0 if options.subwords == "none" else options.merges or _MERGES,
        joined=not options.separate_dictionaries,
        ratio=ratio,
        longest=longest,
    )
    parts = find_parts(settings.languages, options.train, options.valid, options.test)
    workers = options.workers or len(os.sched_getaffinity(0))
    document = prepare(place, settings, parts, workers, lambda line: print(line, file=sys.stderr, flush=True))
    done = document["done"]
    result = {**done["binarizing"], "dropped": done["cleaning"]["dropped"], "held_out": 0}
    if "every" in done["reading"]:
        result["held_out"] = done["reading"]["valid"]
    if options.json:
        print(json_text(result))
    else:
        print(_table(result), end="")
        _print_next(options.data, settings, result)


def _limits(text: str) -> tuple[float, int]:
    """Return the ratio and the length of ``RATIO,LENGTH``."""
    ratio_text, _, length_text = text.partition(",")
    try:
        ratio, longest = float(ratio_text), int(length_text)
    except ValueError:
        ratio, longest = math.nan, 0
    if not (1 <= ratio < math.inf and longest >= 1):
        raise argparse.ArgumentTypeError(f"{text!r} is not RATIO,LENGTH, such as 1.5,250")
    return ratio, longest


def _table(result: dict[str, Any]) -> str:
    """Return what was made, text by text."""
    columns = ("part", "language", "lines", "tokens", "types", "unknown")
    rows = [list(columns)]
    for row in result["rows"]:
        cells = [row[column] for column in columns]
        rows.append([cell if isinstance(cell, str) else f"{cell:,}" for cell in cells])
    return aligned(rows)


def _print_next(data: str, settings: Settings, result: dict[str, Any]) -> None:
    """Print what was dropped and held out, the dictionaries, and the command that comes next."""
    dropped = result["dropped"]
    for reason, count in dropped.items():
        print(f"dropped from train: {count:,} pairs ({reason})")
    for row in result["rows"]:
        if row["empty"]:
            text = f"{row['part']} {row['language']}"
            print(f"{text}: {row['empty']:,} empty lines, which stay, so that lines keep their order")
    if result["held_out"]:
        print(f"held out for validation: {result['held_out']:,} training pairs, raw in {data}/held_out.*")
    sizes = result["dictionaries"]
    if settings.joined:
        print(f"one dictionary for both languages: {sizes[settings.languages[0]]:,} entries")
    else:
        print(f"dictionaries: {', '.join(f'{language} {size:,}' for language, size in sizes.items())} entries")
    print(f"next: fairseq-depthwise train {data} ...")
