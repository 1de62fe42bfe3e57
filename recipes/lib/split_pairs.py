"""Splits parallel text that has no test set, in a way that depends neither on chance nor on the order of lines.

    python split_pairs.py --pair SOURCE TARGET --languages de en --held-out 2000 --output FOLDER

The pairs whose target sentences have the smallest SHA-1 are held out, with one source each; the smallest make the test
set, the next ones the validation set. All pairs with the same source or target as one of them, apart from case and
punctuation, are left out of the training set.
"""

from __future__ import annotations

import argparse
import hashlib
import re
from pathlib import Path

from clean_corpus import paired
from pair_tokens import Pair
from recipe_step import run_step, say

from fairseq_compat import UserError
from fairseq_compat.files import atomic_write

#: Shorter target sentences are not held out: they are too common to be a test.
SHORTEST = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair", nargs=2, required=True, metavar="TEXT")
    parser.add_argument("--languages", nargs=2, required=True, metavar="LANG")
    parser.add_argument("--held-out", type=int, required=True, metavar="N", help="sentences of each of the two sets")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER")
    options = parser.parse_args()
    # Duplicate pairs count once.
    parts = split(list(dict.fromkeys(paired(*options.pair))), options.held_out)
    if not parts["train"] or len(parts["valid"]) < options.held_out:
        raise UserError(f"there are too few pairs to hold out {options.held_out:,} sentences twice")
    options.output.mkdir(exist_ok=True)
    # The training set last: prepare.sh takes its presence for the end of this step.
    for name, part in reversed(parts.items()):
        for side, language in enumerate(options.languages):
            with atomic_write(options.output / f"{name}.{language}") as file:
                file.writelines(f"{pair[side]}\n".encode() for pair in part)
    say(", ".join(f"{len(part):,} pairs of {name}" for name, part in parts.items()))


def split(pairs: list[Pair], held_out: int) -> dict[str, list[Pair]]:
    """Split pairs into ``train``, ``valid`` and ``test``, each in the order of their hashes."""
    # Of several sources of a target, take the first in sorted order.
    by_target: dict[str, Pair] = {}
    for source, target in sorted(pairs):
        if len(target.split()) >= SHORTEST:
            by_target.setdefault(plain(target), (source, target))
    # By hash, so that the order of the corpus does not matter, and additions change little.
    targets = sorted(by_target, key=_hash)[: 2 * held_out]
    unseen = [by_target[target] for target in targets]

    # Nothing held out is trained on, whatever its translation.
    unseen_sources = {plain(source) for source, _ in unseen}
    unseen_targets = set(targets)
    train = []
    for source, target in pairs:
        if plain(source) not in unseen_sources and plain(target) not in unseen_targets:
            train.append((source, target))
    train.sort(key=lambda pair: _hash("\t".join(pair)))
    return {"train": train, "valid": unseen[held_out:], "test": unseen[:held_out]}


def plain(sentence: str) -> str:
    """Return a sentence without case and punctuation."""
    return " ".join(re.sub(r"[\W_]+", " ", sentence.casefold()).split())


def _hash(text: str) -> bytes:
    return hashlib.sha1(text.encode(), usedforsecurity=False).digest()


if __name__ == "__main__":
    run_step(main)
