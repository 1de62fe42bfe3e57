"""Translated blocks of a text on disk, until all are there and become its output.

They are in a folder beside the output, ``OUTPUT.blocks``: each in a file that appears when it is whole, and
``record.json`` with what translations depend on. A start that finds them goes on with the blocks that are missing.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, Any

from fairseq_compat import UserError
from fairseq_compat.files import atomic_write
from fairseq_compat.outputs import MARKER, begin_folder
from fairseq_depthwise.text_files import Block

#: As the folder's marker and errors name it.
KIND = "folder of blocks"

_RECORD, _LOCK = "record.json", ".lock"
_BLOCK = re.compile(r"\d{5}-\d{8}\.block")

#: Bytes of the line before a block's text at most.
_LONGEST_HEADER = 1000


@contextmanager
def block_folder(option: str, output: str, *, force: bool, say: Callable[[str], None]) -> Iterator[BlockFolder]:
    """Yield the folder of an output's blocks, which no other process uses in the meantime; one without any is removed.

    Args:
        option: that names the output, for errors.
        output: a file or folder that is to be made.
        force: leave blocks that depend on something else out, instead of refusing them.
        say: called with what is odd.

    Raises:
        UserError: there is something else, or another process works there.
    """
    place = begin_folder(option, f"{output.rstrip('/')}.blocks", KIND)
    with open(os.path.join(place, _LOCK), "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{option} {output} is being made by another process, in {place}; let it end") from None
        except OSError:
            say(f"{place}: this file system has no locks; see that no other command writes there")
        folder = BlockFolder(place, force=force, say=say)
        try:
            yield folder
        finally:
            if not folder.names():
                folder.remove_blocks()
                for name in (_LOCK, MARKER):
                    os.remove(os.path.join(place, name))
                with suppress(OSError):  # what somebody else has put into it stays, and so does the folder
                    os.rmdir(place)


class BlockFolder:
    """The blocks that are done.

    Args:
        place: the folder.
        force: as for :func:`block_folder`.
        say: as there.
    """

    def __init__(self, place: str, *, force: bool, say: Callable[[str], None]) -> None:
        self.place = place
        self._force = force
        self._say = say

    def require(self, part: str, values: Mapping[str, Any]) -> None:
        """Record what all blocks depend on, or compare it with the record of an earlier start.

        Args:
            part: of the record, as ``options``.
            values: under the names that errors give them.

        Raises:
            UserError: blocks depend on something else.
        """
        record = self._record()
        before, now = record.get(part), json.loads(json.dumps(values))
        if before == now:
            return
        if isinstance(before, dict):
            changed = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
            if not self._force:
                raise UserError(
                    f"{self.place} has blocks that were made with {_listed(changed, before)}, and now there is "
                    f"{_listed(changed, now)}; repeat that command, give another output, or --force to begin anew"
                )
            self._say(f"{self.place}: begun anew, as {', '.join(changed)} differ")
        if part in record or self.names():  # blocks without a record may depend on anything
            self.remove_blocks()
        with atomic_write(os.path.join(self.place, _RECORD)) as file:
            file.write(json.dumps({**record, part: now}, indent=2).encode() + b"\n")

    def _record(self) -> dict[str, Any]:
        try:
            with open(os.path.join(self.place, _RECORD), encoding="utf-8") as file:
                record = json.load(file)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError):
            self._say(f"{self.place}: {_RECORD} is damaged, so its blocks are translated again")
            return {}
        return record if isinstance(record, dict) else {}

    def has(self, block: Block) -> bool:
        """Return whether a block's translations are there and whole."""
        path = self._path(block.file, block.number)
        try:
            with open(path, "rb") as file:
                header, text = json.loads(file.readline(_LONGEST_HEADER)), file.read()
        except FileNotFoundError:
            return False
        except (OSError, ValueError, RecursionError):
            header, text = None, b""
        if header == _header(block, text):
            return True
        self._say(f"{path} is damaged; {block} are translated again")
        return False

    def put(self, block: Block, text: bytes) -> None:
        """Write a block's translations, as they are in the output."""
        with atomic_write(self._path(block.file, block.number)) as file:
            file.write(json.dumps(_header(block, text)).encode() + b"\n" + text)

    def copy(self, file_number: int, blocks: int, output: IO[bytes]) -> None:
        """Write the translations of a whole file, given how many blocks it has."""
        for number in range(blocks):
            with open(self._path(file_number, number), "rb") as file:
                file.readline(_LONGEST_HEADER)
                shutil.copyfileobj(file, output, length=1 << 20)

    def remove_blocks(self) -> None:
        """Remove all blocks and their record, which goes first: blocks without one are not used."""
        with suppress(FileNotFoundError):
            os.remove(os.path.join(self.place, _RECORD))
        for name in self.names():
            os.remove(os.path.join(self.place, name))

    def names(self) -> list[str]:
        """Return the names of the blocks' files."""
        entries = os.scandir(self.place)
        return [entry.name for entry in entries if _BLOCK.fullmatch(entry.name) and entry.is_file()]

    def _path(self, file: int, number: int) -> str:
        return os.path.join(self.place, f"{file:05d}-{number:08d}.block")


def _header(block: Block, text: bytes) -> dict[str, Any]:
    return {"lines": len(block.lines), "sha256": hashlib.sha256(text).hexdigest()}


def _listed(names: list[str], values: Mapping[str, Any]) -> str:
    """Return names with their values, of digests the beginning."""
    return ", ".join(f"{name} {str(values.get(name, 'missing'))[:12]}" for name in names)
