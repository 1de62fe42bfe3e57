"""A large text through many models: what is done stays on disk, and the output appears when it is whole."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fairseq_compat import UserError
from fairseq_compat.belonging import file_digest
from fairseq_compat.files import atomic_write
from fairseq_compat.outputs import MARKER, begin_folder, folder_written_whole, output_folder
from fairseq_depthwise.serving.cluster.ray_blocks import Demand, Loaded, Translators, ray_cluster
from fairseq_depthwise.text_files import Block, blocks_of, compressed

#: As the marker of an output folder names it.
KIND = "folder of translations"

#: Seconds between two lines of progress on stderr.
_EVERY = 10.0

_BLOCK = re.compile(r"\d{5}-\d{8}\.block")


@dataclass(frozen=True)
class LargeText:
    """Files to translate into one ``--output``, or each into its own in an ``--output-folder``; ``option`` says which.

    Blocks have so many ``lines``; ``depends_on`` has the options that translations depend on.
    """

    files: Sequence[str]
    option: str
    output: str
    lines: int
    depends_on: Mapping[str, Any]
    force: bool = False


def require_folder(path: str, files: Sequence[str], *, force: bool) -> str:
    """Return the folder that is to have a file for each of ``files``, before anything is computed."""
    place = output_folder("--output-folder", path, KIND, force=force)
    name, count = Counter(map(os.path.basename, files)).most_common(1)[0]
    if count > 1:
        raise UserError(f"--output-folder {path}: {count} files are called {name}; give them names of their own")
    return place


def translate_large_text(text: LargeText, address: str | None, demand: Demand, load: Callable[[], Loaded]) -> None:
    """Translate what is missing, then write the output; ``load`` makes an actor ready, on every node."""
    folder = BlockFolder(text.output)
    try:
        with ray_cluster(address, demand) as ray:
            translators = Translators(ray, demand, load)
            _say(translators.said.rstrip())
            digests = {f"text {number}": file_digest(path) for number, path in enumerate(text.files, start=1)}
            folder.require({**text.depends_on, **digests, **translators.depends_on}, force=text.force)
            counts = _translate(text, folder, translators)
        _write(text, folder, counts)
        folder.remove()
    finally:
        if folder.blocks():
            _say(f"what is done is in {folder.place}; the same command goes on")
        else:
            folder.remove()


class BlockFolder:
    """The folder ``OUTPUT.blocks``, which no other process uses in the meantime.

    Each block is in a file that appears when it is whole; ``record.json`` has what all of them depend on.
    """

    def __init__(self, output: str) -> None:
        self.place = begin_folder("the folder", f"{output.rstrip('/')}.blocks", "folder of blocks")
        self._record, self._lock = (os.path.join(self.place, name) for name in ("record.json", ".lock"))
        self._locked = open(self._lock, "ab")  # noqa: SIM115  # until this process ends
        try:
            fcntl.flock(self._locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{output} is being made by another process, in {self.place}; let it end") from None

    def require(self, values: Mapping[str, Any], *, force: bool) -> None:
        """Record what blocks depend on, by name; those of an earlier start that differ are refused, or removed."""
        now, before = json.loads(json.dumps(values)), {}
        if os.path.exists(self._record):
            with open(self._record, encoding="utf-8") as file:
                before = json.load(file)
        changed = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
        if changed and self.blocks() and not force:
            raise UserError(
                f"{self.place} has blocks that were made with other {', '.join(changed)}; repeat that command, give "
                "another output, or --force to begin anew"
            )
        if changed:
            self._remove_blocks()
        with atomic_write(self._record) as file:
            file.write(json.dumps(now, indent=2).encode() + b"\n")

    def path(self, file: int, number: int) -> str:
        """Return where a block's translations are, as they are in the output."""
        return os.path.join(self.place, f"{file:05d}-{number:08d}.block")

    def blocks(self) -> list[str]:
        """Return the names of the blocks' files."""
        return list(filter(_BLOCK.fullmatch, os.listdir(self.place))) if os.path.exists(self.place) else []

    def remove(self) -> None:
        """Remove all that is ours; what somebody else has put there stays, and so does the folder."""
        self._remove_blocks()
        for path in (self._record, self._lock, os.path.join(self.place, MARKER)):
            with suppress(FileNotFoundError):
                os.remove(path)
        with suppress(OSError):
            os.rmdir(self.place)

    def _remove_blocks(self) -> None:
        for name in self.blocks():
            os.remove(os.path.join(self.place, name))


def _translate(text: LargeText, folder: BlockFolder, translators: Translators) -> list[int]:
    """Return how many blocks each file has, once all of them are done."""
    counts, done, before = [0] * len(text.files), 0, 0

    def missing() -> Iterator[Block]:
        nonlocal before
        for block in blocks_of(text.files, text.lines):
            counts[block.file] = block.number + 1
            if os.path.exists(folder.path(block.file, block.number)):
                before += len(block.lines)
            else:
                yield block

    started = last_report = time.monotonic()
    for block, translations, warnings in translators.translate(missing()):
        for warning in warnings:
            _say(warning)
        with atomic_write(folder.path(block.file, block.number)) as file:
            file.write(translations)
        done += len(block.lines)
        if time.monotonic() - last_report > _EVERY:
            last_report = time.monotonic()
            rate = done / (last_report - started)
            _say(f"  {before + done:,} lines, {rate:,.1f} a second, {translators.actors} actors")
    seconds = max(time.monotonic() - started, 1e-3)
    earlier = f", {before:,} at earlier starts" if before else ""
    _say(f"{done:,} lines translated in {seconds:,.1f} s, {done / seconds:,.1f} a second{earlier}")
    return counts


def _write(text: LargeText, folder: BlockFolder, counts: Sequence[int]) -> None:
    def write(path: str, files: Sequence[int]) -> None:
        with atomic_write(path) as output:
            for file in files:
                for number in range(counts[file]):
                    with open(folder.path(file, number), "rb") as block:
                        shutil.copyfileobj(block, output)
            if not any(counts[file] for file in files):
                output.write(compressed(path, b""))

    if text.option == "--output":
        write(text.output, range(len(counts)))
        return
    with folder_written_whole(text.output, KIND, replace=text.force) as place:
        for number, path in enumerate(text.files):
            write(os.path.join(place, os.path.basename(path)), [number])


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)
