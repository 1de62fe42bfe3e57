"""Writes text.json into a recipe's data, from which training and translation know how the text was made.

python record_text.py RECIPE DATA LANGUAGE...
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from recipe_step import run_step

from fairseq_compat.text_record import write_text_record
from recipes import all_recipes


def main() -> None:
    recipe, data, *languages = sys.argv[1:]
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for option in ("--tokenizer", "--bpe", "--bpe-codes", "--sentencepiece-model"):
        parser.add_argument(option)
    parser.add_argument("--moses-no-dash-splits", action="store_true")
    options = parser.parse_args(all_recipes()[recipe].text_options(Path(data)))

    tokenizer, subwords = {}, {}
    if options.tokenizer:
        tokenizer["name"] = options.tokenizer
    if options.tokenizer == "moses":
        tokenizer["moses_no_dash_splits"] = options.moses_no_dash_splits
    if options.bpe:
        subwords["name"] = options.bpe
    for name in ("bpe_codes", "sentencepiece_model"):
        file = getattr(options, name)
        if file:
            subwords[name] = os.path.basename(file)
    write_text_record(data, languages, tokenizer, subwords)


if __name__ == "__main__":
    run_step(main)
