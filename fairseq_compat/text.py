r"""Reading text: lines are UTF-8, and end at line feeds, with or without a carriage return before.

Files that Python's ``open`` returns also end a line at a carriage return within a sentence, and an error in their
encoding names neither file nor line.
"""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from fairseq_compat.errors import UserError

#: How many bytes are read at once to count lines.
_BLOCK = 1 << 24

#: Pieces of SentencePiece for the bytes of a letter that its model does not have (byte fallback).
_BYTE_PIECES = re.compile("(?:<0x[0-9A-F]{2}>)+")


def decoded(line: bytes, number: int, path: str) -> str:
    """Decode a line of a text file; the first one (number 1) loses its byte order mark. ``path`` may be ``-``, stdin.

    Raises:
        UserError: the line is not UTF-8.
    """
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        name = "stdin" if path == "-" else path
        raise UserError(f"{name} is not UTF-8: line {number} has the byte 0x{error.object[error.start]:02x}") from None


class TextFile:
    """A text file open for reading, with those methods of the file that ``open`` returns which fairseq uses.

    Args:
        path: of the file; ``-`` is stdin.
        start, end: offsets in bytes of the part to read; ``start`` is the beginning of a line. A line that ends after
            ``end`` is not read; an ``end`` of 0 or less is the end of the file.
        marked: drop a byte order mark at the beginning of the file; otherwise it is the first character of a text.
    """

    def __init__(self, path: str, start: int = 0, end: int = 0, *, marked: bool = True) -> None:
        self.name = path
        self._marked = marked
        self._file = sys.stdin.buffer if path == "-" else open(path, "rb")  # noqa: SIM115  # closed by close()
        self._lines = self._read_lines(start, end)

    def _read_lines(self, start: int, end: int) -> Iterator[str]:
        if start:  # not for 0: a pipe cannot seek
            self._file.seek(start)
        place = start  # counted: a pipe cannot tell
        for number, line in enumerate(self._file, start=1):
            place += len(line)
            if 0 < end < place:
                return
            yield self._decoded(line, number, start)

    def _decoded(self, line: bytes, number: int, start: int) -> str:
        """Decode a line, the ``number``-th from ``start``; drop a carriage return before its line feed."""
        try:
            text = line.decode("utf-8-sig" if self._marked and start == 0 and number == 1 else "utf-8")
        except UnicodeDecodeError:
            # The error names the line's number in the whole file: only then are the lines before this part counted.
            before = number_of_lines(self.name, start) if start else 0
            return decoded(line, before + number, self.name)
        return text[:-2] + "\n" if text.endswith("\r\n") else text

    def __iter__(self) -> Iterator[str]:
        return self._lines

    def __next__(self) -> str:
        return next(self._lines)

    def readline(self) -> str:
        return next(self._lines, "")

    def readlines(self) -> list[str]:
        return list(self._lines)

    def read(self) -> str:
        return "".join(self._lines)

    def close(self) -> None:
        if self.name != "-":
            self._file.close()

    def __enter__(self) -> TextFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def open_text(path: str, mode: str = "r", **options: Any) -> Any:
    """Open a file as ``open`` does, but a text for reading as a :class:`TextFile`."""
    if mode == "r":
        return TextFile(path)
    return open(path, mode, **options)


def number_of_lines(path: str, end: int | None = None) -> int:
    """Return the number of lines of a text file, or of its first ``end`` bytes."""
    lines, last = 0, b"\n"
    with open(path, "rb") as file:
        remaining = end
        while block := file.read(_BLOCK if remaining is None else min(_BLOCK, remaining)):
            lines += block.count(b"\n")
            last = block[-1:]
            if remaining is not None:
                remaining -= len(block)
    return lines + (last != b"\n")  # the last line of a file may have no line feed


def require_parallel(paths: list[str]) -> None:
    """Raise UserError unless all texts have the same number of lines, and at least one."""
    counts = [number_of_lines(path) for path in paths]
    if paths and not any(counts):
        raise UserError(f"{' and '.join(paths)} have no lines: there is nothing to make data of")
    if len(set(counts)) > 1:
        # Perhaps one of them is UTF-16, where other bytes are counted as line feeds: reading it says so.
        for path in paths:
            with TextFile(path) as file:
                deque(file, maxlen=0)  # reads and drops all lines
        counted = [f"{path} has {count:,}" for path, count in zip(paths, counts, strict=True)]
        raise UserError(f"{', '.join(counted)} lines; line N of one must belong to line N of the others")


def joined_pieces(sentence: str) -> str:
    """Join SentencePiece's pieces to text, without their model; byte pieces such as <0xC3> <0x9F> become letters."""
    text = sentence.replace(" ", "").replace("\u2581", " ")
    return one_line(_BYTE_PIECES.sub(_letters, text)).strip()


def _letters(pieces: re.Match[str]) -> str:
    """Return the text of pieces that stand for bytes, with a replacement character for bytes that are not UTF-8."""
    digits = pieces.group().replace("<0x", "").replace(">", "")
    return bytes.fromhex(digits).decode("utf-8", errors="replace")


def one_line(text: str) -> str:
    """Return a text with spaces for line ends, to which a model may have decoded the bytes <0x0A> and <0x0D>."""
    return text.replace("\r", " ").replace("\n", " ")
