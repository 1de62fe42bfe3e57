"""A large text through many models: what is done stays on disk, and the output appears when it is whole."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairseq_compat import UserError
from fairseq_compat.belonging import file_digest
from fairseq_compat.files import atomic_write
from fairseq_compat.outputs import folder_written_whole, output_folder
from fairseq_depthwise.serving.cluster.block_folder import BlockFolder, block_folder
from fairseq_depthwise.serving.cluster.ray_blocks import ActorPool, Demand, Loaded, ray_cluster
from fairseq_depthwise.text_files import Block, blocks_of, compressed

#: As the marker of an output folder names it.
KIND = "folder of translations"

#: Seconds between two lines of progress on stderr.
_EVERY = 10.0


@dataclass(frozen=True)
class LargeText:
    """Files to translate, and where translations go.

    Attributes:
        files: regular ones.
        option: ``--output`` or ``--output-folder``.
        output: the file that has all translations, or the folder that has a file for each of ``files``.
        lines: of a block at most.
        depends_on: what translations depend on besides the text and the model, by option.
        force: replace the output, and blocks that depend on something else.
    """

    files: Sequence[str]
    option: str
    output: str
    lines: int
    depends_on: Mapping[str, Any]
    force: bool = False

    @property
    def is_folder(self) -> bool:
        """Whether there is an output for each file."""
        return self.option == "--output-folder"


def require_folder(path: str, files: Sequence[str], *, force: bool) -> str:
    """Return the folder that is to have a file for each of ``files``, before anything is computed.

    Raises:
        UserError: it may not be made, or files have the same name.
    """
    place = output_folder("--output-folder", path, KIND, force=force)
    names = Counter(map(os.path.basename, files))
    if (name := names.most_common(1)[0])[1] > 1:
        raise UserError(f"--output-folder {path}: {name[1]} files are called {name[0]}; give them names of their own")
    return place


def translate_large_text(text: LargeText, address: str | None, demand: Demand, load: Callable[[], Loaded]) -> None:
    """Translate what is missing, then write the output.

    Args:
        text: what, and where to.
        address: of a Ray cluster; None to start Ray on this machine.
        demand: what is asked of it.
        load: makes an actor ready; it must be importable on every node.

    Raises:
        UserError: it could not be translated; what is done remains for the next start.
    """
    with block_folder(text.option, text.output, force=text.force, say=_say) as folder:
        folder.require("options", text.depends_on)
        folder.require("text", {f"text {number}": file_digest(path) for number, path in enumerate(text.files, start=1)})
        try:
            with ray_cluster(address, demand) as ray:
                counts = _translate(text, folder, ActorPool(ray, demand, load, _say))
        except (KeyboardInterrupt, SystemExit):
            _say(f"what is done is in {folder.place}; the same command goes on")
            raise
        _write(text, folder, counts)
        folder.remove_blocks()


def _translate(text: LargeText, folder: BlockFolder, pool: ActorPool) -> list[int]:
    """Return how many blocks each file has, once all of them are done."""
    counts, done, before = [0] * len(text.files), 0, 0

    def missing() -> Iterator[Block]:
        nonlocal before
        for block in blocks_of(text.files, text.lines):
            counts[block.file] = block.number + 1
            if folder.has(block):
                before += len(block.lines)
            else:
                yield block

    def put(block: Block, translations: bytes) -> None:
        nonlocal done
        folder.put(block, translations)
        done += len(block.lines)

    folder.require("model", pool.first_load())
    started = last_report = time.monotonic()
    actors = 0
    for _ in pool.translate(missing(), put):
        if time.monotonic() - last_report > _EVERY or pool.working != actors:
            last_report, actors = time.monotonic(), pool.working
            rate = done / max(last_report - started, 1e-3)
            _say(f"  {before + done:,} lines, {rate:,.1f} a second, {pool.working} actors")
    earlier = f", {before:,} at earlier starts" if before else ""
    seconds = time.monotonic() - started
    _say(f"{done:,} lines translated in {seconds:,.1f} s, {done / max(seconds, 1e-3):,.1f} a second{earlier}")
    return counts


def _write(text: LargeText, folder: BlockFolder, counts: Sequence[int]) -> None:
    if not text.is_folder:
        with atomic_write(text.output) as output:
            for file, count in enumerate(counts):
                folder.copy(file, count, output)
            if not any(counts):
                output.write(compressed(text.output, b""))
        return
    with folder_written_whole(text.output, KIND, replace=text.force) as place:
        for file, count in enumerate(counts):
            name = os.path.basename(text.files[file])
            with atomic_write(os.path.join(place, name)) as output:
                folder.copy(file, count, output)
                if not count:
                    output.write(compressed(name, b""))


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)
