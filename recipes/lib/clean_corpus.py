"""Parallel text, cleaned and tokenized, from archives to two files.

    python clean_corpus.py --languages en de --pair SOURCE TARGET [--pair ...] --output train --tokenize moses

SOURCE and TARGET name texts as ``text_streams.py`` reads them. Writes ``OUTPUT.en`` and ``OUTPUT.de``, and with
``--raw`` the untouched text as ``OUTPUT.raw.en`` and so on, which scores need. ``OUTPUT.report.txt`` says what was left
out and why.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import chain, starmap

from pair_tokens import Pair, tokenized
from recipe_step import run_step, say
from text_streams import read_text

from fairseq_compat import UserError
from fairseq_compat.files import atomic_write


def fault(
    source: str, target: str, *, longest: int = 0, ratio: float = 0.0, copied: float = 0.0, unequal: bool = False
) -> str | None:
    """Return why a tokenized pair is left out, or None; limits of 0 leave none out.

    Args:
        source, target: the pair.
        longest: tokens of a side.
        ratio: tokens of the longer side for each of the shorter.
        copied: the share of the longer side's words that the other side has, too (Ott et al., 2018).
        unequal: whether sides that are the same are left out.
    """
    # Tokens of both sides.
    lengths = (len(source.split()), len(target.split()))
    if min(lengths) == 0:
        return "one side is empty"
    if longest and max(lengths) > longest:
        return f"more than {longest} tokens"
    if ratio and max(lengths) > ratio * min(lengths):
        return f"one side is more than {ratio:g} times as long as the other"
    # Words count as often as they occur.
    if copied:
        source_words = Counter(source.casefold().split())
        target_words = Counter(target.casefold().split())
        if (source_words & target_words).total() >= copied * max(source_words.total(), target_words.total()):
            return "copied"
    if unequal and source == target:
        return "both sides are the same"
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--languages", nargs=2, required=True, metavar="LANG")
    parser.add_argument("--pair", nargs=2, action="append", required=True, metavar="TEXT")
    parser.add_argument("--output", required=True, metavar="PREFIX")
    kinds = ("none", "unsegmented", "moses", "moses-lower", "moses-escaped", "joined")
    parser.add_argument("--tokenize", choices=kinds, default="none")
    parser.add_argument("--clean", action="store_true", help="leave pairs out; without it, all lines stay")
    parser.add_argument("--keep-equal", action="store_true", help="keep pairs whose sides are the same")
    parser.add_argument("--longest", type=int, default=0, metavar="N", help="tokens of a side")
    parser.add_argument("--ratio", type=float, default=0.0, metavar="R", help="of the sides' lengths")
    parser.add_argument("--copied", type=float, default=0.0, metavar="C", help="share of words that both sides have")
    parser.add_argument("--raw", action="store_true", help="keep the text before tokenization, too")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    clean_corpus(parser.parse_args())


def clean_corpus(options: argparse.Namespace) -> None:
    """Clean and tokenize all pairs; where two sides differ in lines, or nothing is left, no file is written."""
    fault_of = partial(
        fault, longest=options.longest, ratio=options.ratio, copied=options.copied, unequal=not options.keep_equal
    )
    pairs = chain.from_iterable(starmap(paired, options.pair))
    left_out: Counter[str] = Counter()
    count = 0
    endings = list(options.languages)
    if options.raw:
        endings += [f"raw.{language}" for language in options.languages]
    with ExitStack() as stack:
        # All files appear once all pairs are written; after a failure none does.
        files = [stack.enter_context(atomic_write(f"{options.output}.{ending}")) for ending in endings]
        for chunk in tokenized(pairs, options.tokenize, options.languages, options.jobs):
            # Both sides as tokens, then both as they are: in the order of the files.
            good = []
            for texts in chunk:
                count += 1
                reason = fault_of(*texts[:2]) if options.clean else None
                if reason is None:
                    good.append(texts)
                else:
                    left_out[reason] += 1
            for place, file in enumerate(files):
                file.writelines(f"{texts[place]}\n".encode() for texts in good)
        # An empty text would fail much later, in fairseq-preprocess.
        if count == left_out.total():
            raise UserError(f"no pair of {', '.join(map(' and '.join, options.pair))} is left for {options.output}")
        report(options.output, f"{count:,} pairs read, {count - left_out.total():,} kept", left_out)


def paired(source: str, target: str) -> Iterator[Pair]:
    """Yield the lines of two texts together; raise UserError if one ends before the other."""
    # Not zip(), so that the error can say which text is longer.
    targets = read_text(target)
    count = 0
    for source_line in read_text(source):
        target_line = next(targets, None)
        if target_line is None:
            raise UserError(f"{target} has {count:,} lines, and {source} more; line by line they must be pairs")
        yield source_line, target_line
        count += 1
    if next(targets, None) is not None:
        raise UserError(f"{source} has {count:,} lines, and {target} more; line by line they must be pairs")


def report(output: str, summary: str, left_out: Counter[str]) -> None:
    """Write a report beside an output, with how many were left out for each reason, and print it."""
    lines = [summary, *(f"{number:,} left out: {reason}" for reason, number in left_out.most_common())]
    with atomic_write(f"{output}.report.txt") as file:
        file.write("".join(f"{line}\n" for line in lines).encode())
    say(f"{output}: " + "; ".join(lines))


if __name__ == "__main__":
    run_step(main)
