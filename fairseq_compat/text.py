r"""Reading text: lines end at line feeds, with or without a carriage return before, and are UTF-8.

Python's own text files end lines at a carriage return within a sentence, too, and an error in their encoding names
neither file nor line.
"""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from fairseq_compat.errors import UserError

#: Bytes that are read at once to count lines.
_BLOCK = 1 << 24

#: What SentencePiece writes for the bytes of a letter that its model does not have.
_BYTE_PIECES = re.compile("(?:<0x[0-9A-F]{2}>)+")


def decoded(line: bytes, number: int, path: str) -> str:
    """Return a line of a text file as UTF-8, the first one (number 1) without its mark; ``path`` ``-`` is stdin.

    Raises:
        UserError: it is not UTF-8.
    """
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        name = "stdin" if path == "-" else path
        raise UserError(f"{name} is not UTF-8: line {number} has the byte 0x{error.object[error.start]:02x}") from None


class TextFile:
    """A text file that is open for reading, in place of the one that ``open`` returns.

    Args:
        path: of the file; ``-`` is stdin.
        start, end: places in bytes of a part that begins with a line. Lines that begin and end in it are read; an
            ``end`` of 0 or less is that of the file.
        marked: whether the first line may have a byte order mark; otherwise it may begin with that character.
    """

    def __init__(self, path: str, start: int = 0, end: int = 0, *, marked: bool = True) -> None:
        self.name = path
        self._marked = marked
        self._file = sys.stdin.buffer if path == "-" else open(path, "rb")  # noqa: SIM115  # closed by close()
        self._lines = self._read_lines(start, end)

    def _read_lines(self, start: int, end: int) -> Iterator[str]:
        if start:  # a pipe has no other places
            self._file.seek(start)
        place = start
        for number, line in enumerate(self._file, start=1):
            place += len(line)
            if 0 < end < place:
                return
            yield self._decoded(line, number, start)

    def _decoded(self, line: bytes, number: int, start: int) -> str:
        """Return a line, the ``number``-th from ``start``; it ends in a line feed alone."""
        try:
            text = line.decode("utf-8-sig" if self._marked and start == 0 and number == 1 else "utf-8")
        except UnicodeDecodeError:
            # Only an error needs to know how many lines are before this part.
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
    """Open a file as ``open`` does, but a text that is read as a :class:`TextFile`."""
    if mode == "r":
        return TextFile(path)
    return open(path, mode, **options)


def number_of_lines(path: str, end: int | None = None) -> int:
    """Return the number of lines of a text file, or of its first ``end`` bytes; the last one may have no line feed."""
    lines, last = 0, b"\n"
    with open(path, "rb") as file:
        remaining = end
        while block := file.read(_BLOCK if remaining is None else min(_BLOCK, remaining)):
            lines += block.count(b"\n")
            last = block[-1:]
            if remaining is not None:
                remaining -= len(block)
    return lines + (last != b"\n")


def require_parallel(paths: list[str]) -> None:
    """Raise UserError unless all texts have the same number of lines, of UTF-8, and at least one."""
    counts = [number_of_lines(path) for path in paths]
    if paths and not any(counts):
        raise UserError(f"{' and '.join(paths)} have no lines: there is nothing to make data of")
    if len(set(counts)) > 1:
        for path in paths:  # line feeds of another encoding are others
            with TextFile(path) as file:
                deque(file, maxlen=0)
        counted = [f"{path} has {count:,}" for path, count in zip(paths, counts, strict=True)]
        raise UserError(f"{', '.join(counted)} lines; line N of one has to belong to line N of the others")


def joined_pieces(sentence: str) -> str:
    """Return the text of SentencePiece's pieces, without their model: letters for bytes such as <0xC3> <0x9F>, too."""
    text = sentence.replace(" ", "").replace("\u2581", " ")
    return one_line(_BYTE_PIECES.sub(_letters, text)).strip()


def _letters(pieces: re.Match[str]) -> str:
    """Return the text of pieces that are a byte each; a replacement character where they are no text."""
    digits = pieces.group().replace("<0x", "").replace(">", "")
    return bytes.fromhex(digits).decode("utf-8", errors="replace")


def one_line(text: str) -> str:
    """Return a text with spaces for the ends of lines that bytes may have made."""
    return text.replace("\r", " ").replace("\n", " ")
