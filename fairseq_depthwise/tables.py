"""Tables as text and Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Return a table with right-aligned columns; lines may be shorter than the first."""
    widths = [max(len(line[column]) for line in lines if column < len(line)) for column in range(len(lines[0]))]
    return "".join("  ".join(map(str.rjust, line, widths)) + "\n" for line in lines)


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the first line is the header."""
    rows = [lines[0], ["---"] * len(lines[0]), *lines[1:]]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in rows)


def spread(values: Sequence[float], digits: int) -> str:
    """Return the mean and, of several values, their standard deviation; "-" of none."""
    if not values:
        return "-"
    deviation = f" ± {statistics.stdev(values):,.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):,.{digits}f}{deviation}"


def shown(value: Any) -> str:
    """Return a value of a document of JSON as people read it; nothing for None and what is empty."""
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {shown(inner)}" for name, inner in value.items())
    if isinstance(value, tuple | list):
        return ", ".join(map(shown, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}" if isinstance(value, float) else str(value)
