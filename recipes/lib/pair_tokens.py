"""Tokenizes parallel text on all cores, in order, with memory that does not grow with the corpus."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from itertools import islice

Pair = tuple[str, str]

#: The number of pairs that are sent to a process together.
CHUNK = 2000

_CHINESE = r"[\u2e80-\u2fdf\u3000-\u303f\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]"
_BETWEEN_CHINESE = re.compile(rf"(?<={_CHINESE}) +(?={_CHINESE})")


def tokenized(
    pairs: Iterable[Pair], kind: str, languages: Sequence[str], jobs: int
) -> Iterator[list[tuple[str, str, str, str]]]:
    """Yield lists of pairs in order, each tokenized and as it was; pairs are read only as they are needed."""
    iterator = iter(pairs)
    # Lists of CHUNK pairs, until an empty one.
    chunks = iter(lambda: list(islice(iterator, CHUNK)), [])
    work = partial(_tokenized, kind, tuple(languages))
    if jobs == 1:
        yield from map(work, chunks)
        return
    # Only a few chunks wait for processes, not the whole corpus.
    with ProcessPoolExecutor(jobs, initializer=_follow_parent) as pool:
        # Three chunks per process: one in progress, and others ready when it is done.
        waiting = deque(pool.submit(work, chunk) for chunk in islice(chunks, 3 * jobs))
        while waiting:
            yield waiting.popleft().result()
            waiting.extend(pool.submit(work, chunk) for chunk in islice(chunks, 1))


def _follow_parent() -> None:
    """Leave Ctrl-C to the parent, and end with it, even if it is killed; a process that stayed would hold its locks."""
    # The terminal sends Ctrl-C to all processes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        # Returns when the parent has ended, for whatever reason.
        parent.join()
        os._exit(1)


def _tokenized(kind: str, languages: tuple[str, ...], chunk: list[Pair]) -> list[tuple[str, str, str, str]]:
    source, target = (tokenizer(kind, language) for language in languages)
    return [(source(pair[0]), target(pair[1]), *pair) for pair in chunk]


# Cached because Moses reads files to build a tokenizer.
@cache
def tokenizer(kind: str, language: str) -> Callable[[str], str]:
    """Return a function that tokenizes a line.

    ``moses`` is the plugin's ``--tokenizer moses_normalized``, without fairseq around it. ``moses-lower`` is what
    fairseq's own scripts for IWSLT do: the tokenizer alone, which escapes some characters, then lower case.
    ``moses-escaped`` is the same in the text's own case. ``joined`` is for tokens that were made elsewhere, some with
    their hyphens split.
    """
    if kind == "none" or (kind == "unsegmented" and language != "zh"):
        return lambda line: line
    if kind == "unsegmented":
        # Some corpora have Chinese in words, most as it is written.
        return lambda line: _BETWEEN_CHINESE.sub("", line)
    if kind == "joined":
        from fairseq_depthwise.evaluation.scores import join_compounds

        return join_compounds
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    # The remaining kinds use Moses.
    moses = MosesTokenizer(language)
    if kind == "moses-escaped":
        return lambda line: str(moses.tokenize(line, return_str=True))
    if kind == "moses-lower":
        return lambda line: str(moses.tokenize(line, return_str=True)).lower()
    normalizer = MosesPunctNormalizer(language)
    return lambda line: str(moses.tokenize(normalizer.normalize(line), return_str=True, escape=False))
