"""Tables that evaluation prints."""

from __future__ import annotations

from collections.abc import Sequence

from fairseq_depthwise import tables

#: A cell that has nothing to say.
NOTHING = "-"


def filled_table(rows: Sequence[Sequence[str]]) -> str:
    """Return a table without the columns that say nothing in any row; the first row has the titles."""
    columns = zip(*rows, strict=True)
    filled = [column for column in columns if set(column[1:]) != {NOTHING}]
    return tables.aligned(list(zip(*filled, strict=True)))
