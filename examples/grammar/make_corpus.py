"""Write the English-German demo corpus.

    python examples/grammar/make_corpus.py --output FOLDER

The same seed and sizes give the same files, on every platform and version of Python.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from grammar import Grammar
from lexicon import Pair

from fairseq_compat import UserError
from fairseq_compat.files import atomic_write
from fairseq_compat.outputs import output_file

PARTS = ("train", "valid", "test")
LANGUAGES = {"en": "english", "de": "german"}

# A held-out sentence consists of words that training has at least so often.
_MINIMUM_COUNT = 5


def word_forms(sentence: str) -> list[str]:
    """Return the words of a sentence without punctuation, in lower case: at its start a capital says nothing."""
    return [word.strip(".,?").lower() for word in sentence.split()]


def unique_pairs(seed: int) -> Iterator[Pair]:
    """Yield pairs in which no sentence of either language comes twice."""
    grammar = Grammar(seed)
    german_of: dict[str, str] = {}
    seen_german: set[str] = set()
    while True:
        pair = grammar.sentence()
        known = german_of.setdefault(pair.english, pair.german)
        if known != pair.german:
            raise AssertionError(f"two translations of {pair.english!r}: {known!r} and {pair.german!r}")
        if pair.german not in seen_german:
            seen_german.add(pair.german)
            yield pair


def make_corpus(seed: int, train: int, valid: int, test: int) -> dict[str, list[Pair]]:
    """Return the parts of a corpus; held-out sentences have only words that are frequent in training."""
    pairs = unique_pairs(seed)
    training = list(islice(pairs, train))
    english = Counter(word for pair in training for word in word_forms(pair.english))
    german = Counter(word for pair in training for word in word_forms(pair.german))
    familiar = (
        pair
        for pair in pairs
        if min(english[word] for word in word_forms(pair.english)) >= _MINIMUM_COUNT
        and min(german[word] for word in word_forms(pair.german)) >= _MINIMUM_COUNT
    )
    return {"train": training, "valid": list(islice(familiar, valid)), "test": list(islice(familiar, test))}


def _between(lowest: int, highest: int) -> Callable[[str], int]:
    """Return a type of option: a number from ``lowest`` to ``highest``."""

    def number(text: str) -> int:
        if not lowest <= int(text) <= highest:
            raise argparse.ArgumentTypeError(f"must be from {lowest} to {highest}, not {text}")
        return int(text)

    return number


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit status."""
    parser = argparse.ArgumentParser(description="Write the artificial English-German demo corpus.")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="where to write the six files")
    parser.add_argument("--force", action="store_true", help="replace a corpus that exists")
    for option, default, bounds in (
        ("seed", 1, (0, 2**32 - 1)),
        ("train", 12000, (4000, 50000)),
        ("valid", 400, (1, 2000)),
        ("test", 400, (1, 2000)),
    ):
        parser.add_argument(f"--{option}", type=_between(*bounds), default=default, help="default: %(default)s")
    options = parser.parse_args(arguments)
    if str(options.output) == ".":
        parser.error("--output names no folder of its own; give its path")
    try:
        options.output.mkdir(parents=True, exist_ok=True)
        files = {
            (part, language): output_file("--output", f"{options.output}/{part}.{language}", force=options.force)
            for part in PARTS
            for language in LANGUAGES
        }
        corpus = make_corpus(options.seed, options.train, options.valid, options.test)
        for (part, language), path in files.items():
            with atomic_write(path) as file:
                file.writelines(f"{getattr(pair, LANGUAGES[language])}\n".encode() for pair in corpus[part])
    except (OSError, UserError) as error:
        print(f"make_corpus: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
