"""Write the English-German demo corpus.

    python examples/grammar/make_corpus.py --output FOLDER

The same seed and sizes always give the same files, on every platform and Python version.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from grammar import Grammar
from random_source import RandomSource
from sentence import SentencePair

LANGUAGES = ("en", "de")
SPLITS = ("train", "valid", "test")
TRAIN_RANGE = (4000, 50000)
HELD_OUT_RANGE = (1, 2000)
SEED_RANGE = (0, 2**32 - 1)

# A held-out sentence consists of words that training shows at least this often.
MINIMUM_TRAIN_COUNT = 5
_PUNCTUATION = ".,?"


class CorpusError(Exception):
    """A problem to be reported to the user in one sentence."""


@dataclass(frozen=True)
class Corpus:
    """The three splits by name."""

    splits: dict[str, list[SentencePair]]


def word_forms(sentence: str) -> list[str]:
    """Return the words of ``sentence`` without punctuation, the first without its capital.

    Whether the capital belongs to the word cannot be seen there, so lower case is used throughout.
    """
    return [word.strip(_PUNCTUATION).lower() for word in sentence.split()]


class _UniquePairs:
    """A stream of pairs in which no sentence of either language comes twice."""

    def __init__(self, seed: int) -> None:
        self._grammar = Grammar(RandomSource(seed))
        self._german_of: dict[str, str] = {}
        self._seen_german: set[str] = set()

    def next(self) -> SentencePair:
        while True:
            pair = self._grammar.sentence()
            known = self._german_of.get(pair.english)
            if known is not None and known != pair.german:
                raise AssertionError(f"two translations of {pair.english!r}: {known!r} and {pair.german!r}")
            if known is None:
                self._german_of[pair.english] = pair.german
                if pair.german not in self._seen_german:
                    self._seen_german.add(pair.german)
                    return pair


def make_corpus(seed: int, train: int, valid: int, test: int) -> Corpus:
    """Return a corpus of the given sizes whose held-out sentences contain only well-known words."""
    pairs = _UniquePairs(seed)
    training = [pairs.next() for _ in range(train)]
    counts = {language: Counter[str]() for language in LANGUAGES}
    for pair in training:
        counts["en"].update(word_forms(pair.english))
        counts["de"].update(word_forms(pair.german))

    def is_familiar(pair: SentencePair) -> bool:
        return all(counts["en"][word] >= MINIMUM_TRAIN_COUNT for word in word_forms(pair.english)) and all(
            counts["de"][word] >= MINIMUM_TRAIN_COUNT for word in word_forms(pair.german)
        )

    def held_out(size: int) -> list[SentencePair]:
        chosen: list[SentencePair] = []
        while len(chosen) < size:
            pair = pairs.next()
            if is_familiar(pair):
                chosen.append(pair)
        return chosen

    return Corpus({"train": training, "valid": held_out(valid), "test": held_out(test)})


def corpus_paths(folder: Path) -> dict[tuple[str, str], Path]:
    """Return the path of every file of a corpus by split and language."""
    return {(split, language): folder / f"{split}.{language}" for split in SPLITS for language in LANGUAGES}


def refuse_to_overwrite(folder: Path) -> None:
    """Raise an error if there is a file of a corpus in ``folder``."""
    for path in corpus_paths(folder).values():
        if path.exists():
            raise CorpusError(f"{path} exists already; add --force to replace the corpus in {folder}.")


def write_corpus(corpus: Corpus, folder: Path) -> None:
    """Write six files; each appears under its name only when all are complete."""
    folder.mkdir(parents=True, exist_ok=True)
    finished: list[tuple[Path, Path]] = []
    try:
        for (split, language), path in corpus_paths(folder).items():
            pairs = corpus.splits[split]
            lines = [pair.english if language == "en" else pair.german for pair in pairs]
            temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
            with temporary.open("x", encoding="utf-8", newline="\n") as file:
                finished.append((temporary, path))
                file.writelines(f"{line}\n" for line in lines)
                file.flush()
                os.fsync(file.fileno())
        for temporary, path in finished:
            temporary.replace(path)
    finally:
        for temporary, _ in finished:
            temporary.unlink(missing_ok=True)


def _folder(text: str) -> Path:
    """Return a path; an empty text would be the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("an empty name is no folder; . is the current one")
    return Path(text)


def _check(name: str, value: int, bounds: tuple[int, int]) -> None:
    lowest, highest = bounds
    if not lowest <= value <= highest:
        raise CorpusError(f"--{name} must be from {lowest} to {highest}, not {value}.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit status."""
    parser = argparse.ArgumentParser(description="Write the artificial English-German demo corpus.")
    parser.add_argument("--output", type=_folder, required=True, metavar="FOLDER", help="where to write the six files")
    parser.add_argument("--seed", type=int, default=1, help="which corpus to make (default: %(default)s)")
    parser.add_argument("--train", type=int, default=12000, help="training pairs, 4000 to 50000 (default: %(default)s)")
    parser.add_argument("--valid", type=int, default=400, help="validation pairs, 1 to 2000 (default: %(default)s)")
    parser.add_argument("--test", type=int, default=400, help="test pairs, 1 to 2000 (default: %(default)s)")
    parser.add_argument("--force", action="store_true", help="replace a corpus that exists already")
    options = parser.parse_args(arguments)
    try:
        _check("seed", options.seed, SEED_RANGE)
        _check("train", options.train, TRAIN_RANGE)
        _check("valid", options.valid, HELD_OUT_RANGE)
        _check("test", options.test, HELD_OUT_RANGE)
        if not options.force:
            refuse_to_overwrite(options.output)
        write_corpus(make_corpus(options.seed, options.train, options.valid, options.test), options.output)
    except (CorpusError, OSError) as error:
        print(f"make_corpus: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
