r"""Lines of text files, which end in ``\n`` or ``\r\n`` and in nothing else.

``str.splitlines`` and text files of Python end lines at characters that occur within sentences, such as U+2028.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext

from fairseq_compat import UserError


def lines_of(path: str) -> Iterator[str]:
    """Yield the lines of a file, as soon as each is there; ``-`` is stdin.

    Raises:
        UserError: the file is a folder, or a line is not UTF-8.
    """
    try:
        opened = nullcontext(sys.stdin.buffer) if path == "-" else open(path, "rb")  # noqa: SIM115  # closed below
    except IsADirectoryError:
        raise UserError(f"{path} is a folder; give a text file") from None
    with opened as file:
        for number, line in enumerate(file, start=1):
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                name = "stdin" if path == "-" else path
                raise UserError(f"{name} is not UTF-8: line {number} has the byte 0x{line[error.start]:02x}") from None
            yield text.removesuffix("\n").removesuffix("\r")
