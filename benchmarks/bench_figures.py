"""How cost grows with depth and with the length of sentences, from the record of ``bench.py``, as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench_page import rates
from bench_rows import BEAMS, DECODING, SDT, STOCK_PRE_NORM, TRAINING, Case
from side_by_side import quartiles

from fairseq_depthwise.figures import COLORS, MARKERS, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Places of a line: x, and the rates there, of each round.
Line = list[tuple[int, list[float]]]

#: What is drawn on the left and on the right: the vertical axis's name, and the unit that the seconds are of.
PANELS = {TRAINING: ("training: ms for 1000 target tokens", 1000), DECODING: ("decoding: ms for a sentence", 1)}


def write_figures(record: Mapping[str, Any], folder: Path, name: str) -> dict[str, str]:
    """Draw the figures for which there are at least two places to draw a line through.

    Args:
        record: see ``bench_page``.
        folder: where they are written.
        name: what their names begin with.

    Returns:
        what a figure shows -> its path from the folder above.
    """
    precision = record["setup"]["precisions"][0]
    by_depth = {part: lines_by_depth(record, precision, part) for part in PANELS}
    by_length = {part: lines_by_length(record, precision, part) for part in PANELS}
    written = {}
    for short, across, panels in (
        ("depth", "encoder layers, 6 decoder layers", by_depth),
        ("length", "tokens in each sentence", by_length),
    ):
        if not any(panels.values()):
            continue
        path = folder / f"{name}_{short}.svg"

        def draw(figure: Figure, across: str = across, panels: Mapping[str, Mapping[str, Line]] = panels) -> None:
            names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
            for axes, part in zip(figure.subplots(1, 2), PANELS, strict=True):
                _draw(axes, panels[part], names, across, *PANELS[part])
            legends = [axes for axes in figure.axes if axes.get_legend_handles_labels()[0]]
            legends[0].legend(frameon=False)

        write_figure(str(path), (9, 3.8), draw)
        written[f"Cost by {across}, {precision}"] = f"{folder.name}/{path.name}"
    return written


def lines_by_depth(record: Mapping[str, Any], precision: str, part: str) -> dict[str, Line]:
    """Rates over the number of encoder layers: of stock fairseq's pre-norm model, and of each kind of sdt."""
    case = Case(part) if part == TRAINING else _large_batch(record)
    lines: dict[str, Line] = {}
    for row, about in record["rows"].items():
        if about["family"] in (STOCK_PRE_NORM, SDT):
            found = rates(record, row, precision, case)
            if found:
                kind = row.replace(f" {about['layers']}", "", 1)
                lines.setdefault(kind, []).append((about["layers"], found))
    return {kind: sorted(line) for kind, line in lines.items() if len(line) > 1}


def lines_by_length(record: Mapping[str, Any], precision: str, part: str) -> dict[str, Line]:
    """Rates over the length of sentences, of the rows that were measured by length."""
    lines: dict[str, Line] = {}
    for row in record["rows"]:
        for length in sorted(record["setup"]["lengths"]):
            case = Case(part, length=length)
            if part == DECODING:
                case = Case(part, beam=BEAMS[0], sentences=record["setup"]["sentences"][-1], length=length)
            found = rates(record, row, precision, case)
            if found:
                lines.setdefault(row, []).append((length, found))
    return {row: line for row, line in lines.items() if len(line) > 1}


def _large_batch(record: Mapping[str, Any]) -> Case:
    return Case(DECODING, beam=BEAMS[0], sentences=record["setup"]["sentences"][-1])


def _draw(axes: Axes, lines: Mapping[str, Line], names: Sequence[str], across: str, upwards: str, amount: int) -> None:
    """Medians as lines, quartiles as bars; the place of a line among all names gives its color."""
    axes.set_xlabel(across)
    axes.set_ylabel(upwards)
    axes.spines[["top", "right"]].set_visible(False)
    for name, line in lines.items():
        number = names.index(name)
        low, middle, high = zip(*(_milliseconds(found, amount) for _, found in line), strict=True)
        bars = [
            [one - other for one, other in zip(middle, low, strict=True)],
            [one - other for one, other in zip(high, middle, strict=True)],
        ]
        places = [place for place, _ in line]
        style = {"color": COLORS[number % len(COLORS)], "marker": MARKERS[number % len(MARKERS)], "markersize": 4}
        axes.errorbar(places, middle, yerr=bars, label=name, linewidth=1.3, capsize=2, **style)
    if lines:
        axes.set_xticks(sorted({place for line in lines.values() for place, _ in line}))
    axes.set_ylim(bottom=0)


def _milliseconds(found: Sequence[float], amount: int) -> tuple[float, float, float]:
    seconds = [1000 * amount / rate for rate in found]
    return quartiles(seconds) if len(seconds) > 1 else (seconds[0],) * 3
