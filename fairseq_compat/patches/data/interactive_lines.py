"""``fairseq-interactive`` ends lines at carriage returns within them, and reads stdin in the locale's encoding.

Every translation after such a line then has another number than its source, and outside of UTF-8 locales text is
misread without a word. Lines end at line feeds only, with or without a carriage return before, and are UTF-8.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import islice
from typing import Any

from fairseq_compat.files import decoded


def adjust(module: Any) -> Iterator[None]:
    yield

    def buffered_read(input: str, buffer_size: int) -> Iterator[list[str]]:
        with nullcontext(sys.stdin.buffer) if input == "-" else open(input, "rb") as file:
            lines = (decoded(line, number, input).strip() for number, line in enumerate(file, start=1))
            while buffer := list(islice(lines, buffer_size)):
                yield buffer

    module.buffered_read = buffered_read
