"""Parallel text, cleaned and tokenized, from archives to two files.

    python clean_corpus.py --languages en de --pair SOURCE TARGET [--pair ...] --output train --tokenize moses

SOURCE and TARGET name texts as ``text_streams.py`` reads them. Writes ``OUTPUT.en`` and ``OUTPUT.de``, and with
``--raw`` the untouched text as ``OUTPUT.raw.en`` and so on, which scores need. ``OUTPUT.report.txt`` says what was left
out and why.
"""

from __future__ import annotations

import argparse
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import zip_longest
from typing import NamedTuple

from parallel_lines import map_in_order
from recipe_step import output_name, run_step, say
from text_streams import read_text

from fairseq_compat import UserError
from fairseq_compat.files import atomic_write

_CHINESE = r"[\u2e80-\u2fdf\u3000-\u303f\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]"
_BETWEEN_CHINESE = re.compile(rf"(?<={_CHINESE}) +(?={_CHINESE})")


class Limits(NamedTuple):
    """Which pairs are count.

    Attributes:
        longest: tokens of either side; 0 for any number.
        ratio: tokens of the longer side for each of the shorter; 0 for any.
        unequal: whether a pair whose sides are the same text is left out.
    """

    longest: int = 0
    ratio: float = 0.0
    unequal: bool = False

    def fault(self, source: str, target: str) -> str | None:
        """Return why a tokenized pair is left out, or None."""
        lengths = (len(source.split()), len(target.split()))
        if min(lengths) == 0:
            return "one side is empty"
        if self.longest and max(lengths) > self.longest:
            return f"more than {self.longest} tokens"
        if self.ratio and max(lengths) > self.ratio * min(lengths):
            return f"one side is more than {self.ratio:g} times as long as the other"
        if self.unequal and source == target:
            return "both sides are the same"
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--languages", nargs=2, required=True, metavar="LANG")
    parser.add_argument("--pair", nargs=2, action="append", required=True, metavar="TEXT")
    parser.add_argument("--output", type=output_name, required=True, metavar="PREFIX")
    parser.add_argument("--tokenize", choices=("none", "unsegmented", "moses", "moses-lower"), default="none")
    parser.add_argument("--clean", action="store_true", help="leave pairs out; without it, all lines stay")
    parser.add_argument("--keep-equal", action="store_true", help="keep pairs whose sides are the same")
    parser.add_argument("--longest", type=int, default=0, metavar="N", help="tokens of a side")
    parser.add_argument("--ratio", type=float, default=0.0, metavar="R", help="of the sides' lengths")
    parser.add_argument("--raw", action="store_true", help="keep the text before tokenization, too")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    limits = Limits(options.longest, options.ratio, unequal=not options.keep_equal) if options.clean else None
    clean_corpus(
        options.pair, options.languages, options.output, options.tokenize, limits, raw=options.raw, jobs=options.jobs
    )


def clean_corpus(
    pairs: list[list[str]],
    languages: list[str],
    output: str,
    tokenize: str,
    limits: Limits | None,
    *,
    raw: bool,
    jobs: int,
) -> None:
    """Clean and tokenize, as the head of this file says; without ``limits`` all lines stay, even empty ones.

    Raises:
        UserError: a text cannot be read, or two sides have different numbers of lines; then no file is written.
    """
    left_out: Counter[str] = Counter()
    read = count = 0
    with ExitStack() as stack:
        files = [stack.enter_context(atomic_write(f"{output}.{language}")) for language in languages]
        raws = [stack.enter_context(atomic_write(f"{output}.raw.{language}")) for language in languages] if raw else []
        for chunk in map_in_order(_tokenize, _all_pairs(pairs), jobs, partial(_prepare, tokenize, languages)):
            chosen = []
            for pair, tokens in chunk:
                fault = limits.fault(*tokens) if limits is not None else None
                if fault is None:
                    chosen.append((pair, tokens))
                else:
                    left_out[fault] += 1
            read += len(chunk)
            count += len(chosen)
            for side, file in enumerate(files):
                file.write("".join(f"{tokens[side]}\n" for _, tokens in chosen).encode())
            for side, file in enumerate(raws):
                file.write("".join(f"{pair[side]}\n" for pair, _ in chosen).encode())
            if read // 1_000_000 > (read - len(chunk)) // 1_000_000:
                say(f"{output}: {read:,} pairs read, {count:,} kept")
        if count == 0:
            raise UserError(f"no pair of {', '.join(' and '.join(pair) for pair in pairs)} is left for {output}")
        report = stack.enter_context(atomic_write(f"{output}.report.txt"))
        lines = [f"{read:,} pairs read, {count:,} kept"]
        lines += [f"{number:,} left out: {reason}" for reason, number in left_out.most_common()]
        report.write("".join(f"{line}\n" for line in lines).encode())
    say(f"{output}: " + "; ".join(lines))


Pair = tuple[str, str]

#: Of this process, one for each side.
_tokenizers: list[Callable[[str], str]] = []


def _prepare(tokenize: str, languages: list[str]) -> None:
    _tokenizers[:] = [tokenizer(tokenize, language) for language in languages]


def _tokenize(chunk: list[Pair]) -> list[tuple[Pair, Pair]]:
    """Return each pair as it is and tokenized."""
    source, target = _tokenizers
    return [(pair, (source(pair[0]), target(pair[1]))) for pair in chunk]


def tokenizer(kind: str, language: str) -> Callable[[str], str]:
    """Return what tokenizes a line.

    ``moses`` is the plugin's ``--tokenizer moses_normalized``, without fairseq around it. ``moses-lower`` is what
    fairseq's own scripts for IWSLT do: the tokenizer alone, which escapes some characters, then lower case.
    """
    if kind == "none" or (kind == "unsegmented" and language != "zh"):
        return lambda line: line
    if kind == "unsegmented":
        # Some corpora have Chinese in words, most as it is written.
        return lambda line: _BETWEEN_CHINESE.sub("", line)
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    moses = MosesTokenizer(language)
    if kind == "moses-lower":
        return lambda line: str(moses.tokenize(line, return_str=True)).lower()
    normalizer = MosesPunctNormalizer(language)

    def tokenized(line: str) -> str:
        return str(moses.tokenize(normalizer.normalize(line), return_str=True, escape=False))

    return tokenized


def _all_pairs(names: list[list[str]]) -> Iterator[tuple[str, str]]:
    """Yield the lines of all texts, source and target together.

    Raises:
        UserError: one side ends before the other.
    """
    for source_name, target_name in names:
        number = 0
        sources, targets = read_text(source_name), read_text(target_name)
        for number, (source, target) in enumerate(zip_longest(sources, targets), start=1):
            if source is None or target is None:
                short, long = (source_name, target_name) if source is None else (target_name, source_name)
                longer = number + sum(1 for _ in (targets if source is None else sources))
                raise UserError(
                    f"{short} has {number - 1:,} lines and {long} has {longer:,}; line by line they must be "
                    "translations of each other"
                )
            yield source, target
        if number == 0:
            raise UserError(f"{source_name} and {target_name} are empty")


if __name__ == "__main__":
    run_step(main)
