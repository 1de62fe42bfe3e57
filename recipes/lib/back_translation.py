"""Steps of back_translate.sh: clean monolingual text, and add the tag of synthetic pairs to the dictionaries.

python back_translation.py clean TEXT... --output mono.de
python back_translation.py dictionaries dict.en.txt dict.de.txt --tag '<BT>' --output new.en.txt new.de.txt
"""

from __future__ import annotations

import argparse
from collections import Counter
from itertools import chain
from pathlib import Path

from clean_corpus import report
from recipe_step import run_step
from text_streams import read_text

from fairseq_compat import UserError
from fairseq_compat.files import atomic_write

#: fairseq-preprocess pads dictionaries to a multiple of 8 with madeupword0000, madeupword0001 and so on.
_FILLER = "madeupword"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    cleaning = commands.add_parser("clean")
    cleaning.set_defaults(run=clean)
    cleaning.add_argument("texts", nargs="+", metavar="TEXT")
    cleaning.add_argument("--longest", type=int, default=250, metavar="N", help="drop sentences of more than N words")
    cleaning.add_argument("--lower", action="store_true", help="write text in lower case")
    cleaning.add_argument("--output", required=True)
    tagging = commands.add_parser("dictionaries")
    tagging.set_defaults(run=dictionaries)
    tagging.add_argument("files", nargs=2, metavar="DICT")
    tagging.add_argument("--tag", required=True, help="empty for none")
    tagging.add_argument("--output", nargs=2, required=True)
    options = parser.parse_args()
    options.run(options)


def clean(options: argparse.Namespace) -> None:
    """Copy monolingual text, one sentence per line, without empty or overlong sentences."""
    left_out: Counter[str] = Counter()
    count = 0
    with atomic_write(options.output) as file:
        for line in chain.from_iterable(map(read_text, options.texts)):
            count += 1
            words = len(line.split())
            if words == 0:
                left_out["empty"] += 1
            elif words > options.longest:
                left_out[f"more than {options.longest} words"] += 1
            else:
                file.write(f"{line.lower() if options.lower else line}\n".encode())
        if count == left_out.total():
            raise UserError(f"no sentence of {', '.join(options.texts)} is left for {options.output}")
        report(options.output, f"{count:,} sentences read, {count - left_out.total():,} kept", left_out)


def dictionaries(options: argparse.Namespace) -> None:
    """Write copies of the dictionaries, the source one with the tag; it replaces a filler, so all ids stay."""
    source, target = (Path(file).read_text(encoding="utf-8") for file in options.files)
    tagged = source
    if options.tag and f"\n{options.tag} " not in f"\n{source}":
        entries = source.split("\n")[:-1]  # not splitlines(): tokens may contain other line separators
        fillers = [index for index, entry in enumerate(entries) if entry.startswith(_FILLER)]
        # Fillers never occur in text, so the tag can take the number of one.
        if fillers:
            entries[fillers[0]] = f"{options.tag} 1"
        else:
            entries.append(f"{options.tag} 1")
        tagged = "".join(f"{entry}\n" for entry in entries)
    # If source and target share a dictionary, they still do.
    texts = [tagged, tagged if source == target else target]
    for path, text in zip(options.output, texts, strict=True):
        with atomic_write(path) as file:
            file.write(text.encode())


if __name__ == "__main__":
    run_step(main)
