r"""Lines of text files, which end in ``\n`` or ``\r\n`` and in nothing else.

``str.splitlines`` and text files of Python end lines at characters that occur within sentences, such as U+2028. Files
whose names end in ``.gz`` or ``.xz`` are compressed.
"""

from __future__ import annotations

import gzip
import itertools
import lzma
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import IO, Any

from fairseq_compat import UserError
from fairseq_compat.text import decoded

#: Bytes of a compressed file that are read at a time, and of its text.
_PART = 1 << 20


def lines_of(path: str) -> Iterator[str]:
    """Yield the lines of a file, as soon as each is there; ``-`` is stdin. A byte order mark is left out.

    Raises:
        UserError: the file is a folder, is compressed and damaged, or a line is not UTF-8.
    """
    try:
        # Closed below; stdin stays open. SIM115 asks for a with statement here, where only this error is caught.
        opened: Any = nullcontext(sys.stdin.buffer) if path == "-" else open(path, "rb")  # noqa: SIM115
    except IsADirectoryError:
        raise UserError(f"{path} is a folder; give a text file") from None
    with opened as file:
        try:
            for number, line in enumerate(_byte_lines(path, file), start=1):
                yield decoded(line, number, path).removesuffix("\n").removesuffix("\r")
        except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
            raise UserError(f"{path} is damaged, incomplete or not compressed as its name says ({error})") from error


def _byte_lines(path: str, file: Any) -> Iterable[bytes]:
    """Return the lines of an open file, decompressed if its name says that it is compressed.

    Raises:
        EOFError: it has no byte, which neither format allows; ``gzip.open`` reads that as an empty text.
    """
    if not path.endswith((".gz", ".xz")):
        return file
    if not file.peek(1):
        raise EOFError("it is empty")
    return gzip.GzipFile(fileobj=file) if path.endswith(".gz") else _xz_lines(file)


def _xz_lines(file: IO[bytes]) -> Iterator[bytes]:
    # What follows the last end of a line is the beginning of the next part's first line.
    rest = b""
    for part in _xz_parts(file):
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            yield line + b"\n"
    if rest:
        yield rest


def _xz_parts(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the text of an .xz file, which may be several put together.

    ``lzma.open`` silently ignores what follows one of them, unless it begins as another.

    Raises:
        EOFError, lzma.LZMAError: it is cut short, or damaged.
    """
    data = file.read(_PART)
    while data:
        stream = lzma.LZMADecompressor()
        while not stream.eof:
            yield stream.decompress(data, _PART)
            data = b""
            if stream.needs_input:
                data = file.read(_PART)
                if not data:
                    raise EOFError("it is cut short")

        # Another stream may follow, after zeros.
        data = stream.unused_data.lstrip(b"\0")
        while not data:
            part = file.read(_PART)
            if not part:
                return
            data = part.lstrip(b"\0")


def compressed(path: str, data: bytes) -> bytes:
    """Return data compressed for a file of this name; parts that are compressed one by one can be concatenated."""
    if path.endswith(".gz"):
        return gzip.compress(data, compresslevel=6, mtime=0)  # the same bytes whenever it is written
    if path.endswith(".xz"):
        return lzma.compress(data)
    return data


@dataclass(frozen=True)
class Block:
    """Lines of a file that are translated together.

    Attributes:
        path: of the file; - for stdin.
        file: the file's place among the files, from 0.
        number: of the block in the file, from 0.
        first: number of the block's first line, from 1.
        lines: without their ends.
    """

    path: str
    file: int
    number: int
    first: int
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return f"{'stdin' if self.path == '-' else self.path}, lines {self.first:,} to {self.last:,}"

    @property
    def last(self) -> int:
        """The number of its last line."""
        return self.first + len(self.lines) - 1


def blocks_of(paths: Sequence[str], size: int) -> Iterator[Block]:
    """Yield the lines of files, at most ``size`` of a file at a time; a block is read only when it is needed."""
    for file, path in enumerate(paths):
        lines = lines_of(path)
        for number in itertools.count():
            block = tuple(itertools.islice(lines, size))
            if not block:
                break
            yield Block(path, file, number, number * size + 1, block)
