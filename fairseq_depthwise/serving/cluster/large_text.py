"""Translating a large text with many models: finished blocks stay on disk, and the output appears when complete."""

from __future__ import annotations

import fcntl
import glob
import hashlib
import json
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from itertools import chain
from typing import Any

from fairseq_compat import UserError
from fairseq_compat.files import atomic_write
from fairseq_compat.outputs import MARKER, begin_folder, folder_written_whole, output_folder
from fairseq_compat.provenance import file_digest
from fairseq_depthwise.serving.cluster.ray_blocks import Translators
from fairseq_depthwise.text_files import Block, blocks_of, compressed

KIND = "folder of translations"  # its name in the marker of an output folder
_EVERY = 10.0  # seconds between progress messages on stderr


def require_folder(path: str, files: Sequence[str], *, force: bool) -> str:
    """Return the folder for the translations of ``files``, after checking it before anything is computed."""
    place = output_folder("--output-folder", path, KIND, force=force, inputs=files)
    name, count = Counter(map(os.path.basename, files)).most_common(1)[0]
    if count > 1:
        raise UserError(f"--output-folder {path}: {count} files are called {name}; give them names of their own")
    return place


def translate_large_text(
    files: Sequence[str],
    output: str,
    *,
    in_folder: bool,
    lines: int,
    depends_on: Mapping[str, Any],
    start: Callable[[], Translators],
    force: bool = False,
) -> None:
    """Translate the missing blocks of lines, then write the output: one file, or one for each of ``files`` in a folder.

    Finished blocks are files in the folder ``OUTPUT.blocks``. Their names have a digest of all that the translations
    depend on, such as the options ``depends_on``, which tells them from blocks of other texts and options.
    """
    # 1. The folder of blocks, which only one process may use at a time.
    place = begin_folder("the folder", f"{output.rstrip('/')}.blocks", "folder of blocks")
    blocks = os.path.join(glob.escape(place), f"{'?' * 16}-{'[0-9]' * 5}-{'[0-9]' * 8}.block")
    marker = os.path.join(place, MARKER)
    with open(marker, "ab") as locked:  # NFS only locks files that are open for writing
        try:
            fcntl.flock(locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{output} is being made by another process, in {place}; let it end") from None
        try:
            # 2. The blocks. Their key covers all that translations depend on, so no outdated one is read.
            with closing(start()) as translators:
                _say(translators.messages.rstrip())
                all_of_it = [depends_on, *map(file_digest, files), translators.depends_on]
                key = hashlib.sha256(json.dumps(all_of_it, sort_keys=True).encode()).hexdigest()[:16]
                paths = _translate(files, lines, os.path.join(place, key), translators)
            # 3. The output.
            if in_folder:
                with folder_written_whole(output, KIND, replace=force) as folder:
                    for name, of_file in zip(map(os.path.basename, files), paths, strict=True):
                        _join(os.path.join(folder, name), of_file)
            else:
                _join(output, [*chain.from_iterable(paths)])
            # Including those of earlier starts with other options.
            for path in glob.iglob(blocks):
                os.remove(path)
        finally:
            if glob.glob(blocks):
                _say(f"what is done is in {place}; the same command goes on")
            else:
                os.remove(marker)
                with suppress(OSError):  # what somebody else has put there stays
                    os.rmdir(place)


def _translate(files: Sequence[str], lines: int, prefix: str, translators: Translators) -> list[list[str]]:
    """Translate all missing blocks, and return the paths of each file's blocks."""
    paths: list[list[str]] = [[] for _ in files]
    done = before = 0

    def missing() -> Iterator[Block]:
        nonlocal before
        # Yielded one by one, as actors become free, so memory does not grow with the text.
        for block in blocks_of(files, lines):
            paths[block.file].append(f"{prefix}-{block.file:05d}-{block.number:08d}.block")
            if os.path.exists(paths[block.file][-1]):
                before += len(block.lines)
            else:
                yield block

    started = last_report = time.monotonic()
    for block, translations, warnings in translators.translate(missing()):
        for warning in warnings:
            _say(warning)
        with atomic_write(paths[block.file][block.number]) as file:
            file.write(translations)
        done += len(block.lines)
        if time.monotonic() - last_report > _EVERY:
            last_report = time.monotonic()
            rate = f"{done / (last_report - started):,.1f} a second"
            _say(f"  {before + done:,} lines, {rate}, {translators.actors} actors")
    seconds = max(time.monotonic() - started, 1e-3)
    earlier = f", {before:,} at earlier starts" if before else ""
    _say(f"{done:,} lines translated in {seconds:,.1f} s, {done / seconds:,.1f} a second{earlier}")
    return paths


def _join(path: str, blocks: Sequence[str]) -> None:
    with atomic_write(path) as output:
        for block in blocks:
            with open(block, "rb") as file:
                shutil.copyfileobj(file, output)
        # An empty input has no blocks, but an empty .gz file still has a header.
        if not blocks:
            output.write(compressed(path, b""))


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)
