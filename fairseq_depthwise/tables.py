"""Results as they are printed: tables as text and Markdown, and JSON."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any


class Table:
    """A table with named columns; cells that a row lacks are empty."""

    def __init__(self, *columns: str) -> None:
        self.columns = columns
        self.rows: list[list[str]] = []

    def add(self, cells: Mapping[str, str]) -> None:
        """Add a row, given as column -> cell."""
        self.rows.append([cells.get(column, "") for column in self.columns])

    def markdown(self) -> str:
        return markdown([self.columns, *self.rows])


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return a table with right-aligned columns; rows may be shorter than the first."""
    widths = []  # of each column
    for column in range(len(rows[0])):
        cells = [row[column] for row in rows if column < len(row)]
        widths.append(max(map(len, cells)))
    lines = []
    for row in rows:
        padded = map(str.rjust, row, widths)
        lines.append("  ".join(padded) + "\n")
    return "".join(lines)


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the first row is the header."""
    header, *body = rows
    rule = ["---"] * len(header)
    lines = []
    for row in (header, rule, *body):
        escaped = [cell.replace("|", "\\|") for cell in row]
        lines.append(f"| {' | '.join(escaped)} |\n")
    return "".join(lines)


def spread(values: Sequence[float], digits: int) -> str:
    """Return the mean and, for several values, their standard deviation; "-" for no value."""
    if not values:
        return "-"
    mean = f"{statistics.fmean(values):,.{digits}f}"
    if len(values) == 1:
        return mean
    return f"{mean} ± {statistics.stdev(values):,.{digits}f}"


def decimal(value: float | None, form: str) -> str:
    """Return a number in a format such as ".2f"; "-" for None."""
    return "-" if value is None else format(value, form)


def json_text(document: Any, *, default: Callable[[Any], Any] | None = None) -> str:
    """Return a document as JSON, which has neither NaN nor infinity: they become null.

    ``default`` is json's: it converts values that JSON does not have.
    """
    # Python writes NaN and Infinity, and passes these names to parse_constant when it reads them.
    text = json.dumps(document, default=default)
    finite = json.loads(text, parse_constant=lambda name: None)
    return json.dumps(finite, indent=2)


def shown(value: Any) -> str:
    """Return a value of a JSON document in readable form; "" for None and for empty values."""
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {shown(inner)}" for name, inner in value.items())
    if isinstance(value, tuple | list):
        return ", ".join(map(shown, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)
