"""Figures over the layers of stacks: similarities, gates and norms of depth-wise LSTM cells, weights of connections."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fairseq_depthwise.analysis.stacks.connection_weights import SourceWeight
from fairseq_depthwise.analysis.stacks.gate_statistics import CellStatistics, MeanDeviation
from fairseq_depthwise.analysis.stacks.layer_similarity import LayerSimilarity
from fairseq_depthwise.analysis.stacks.report import StackReport, weights_matrix
from fairseq_depthwise.figures import COLORS, MARKERS, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

#: Field of a row -> title of its panel, or name of its line.
_SIMILARITIES = {
    "emb_similarity": "to the embedding",
    "adjacent_similarity": "to the layer below",
    "inter_similarity": "to the mean of the sentence",
}
_GATES = {"input_gate": "input gate", "forget_gate": "forget gate", "output_gate": "output gate"}
_NORMS = {"cell_norm": "cell state", "output_norm": "output"}

#: Lines that share a color differ in style.
_DASHES = ("-", "--", ":", "-.")

#: Approximate maximum number of markers on a line.
_MARKERS_SHOWN = 12


def write_similarity(path: str, titles: Sequence[str], reports: Sequence[StackReport[LayerSimilarity]]) -> None:
    """Draw a panel for each similarity, with a line for each checkpoint, and a row of panels for each side."""
    sides = list(reports[0].rows)
    columns = max(1, min(len(titles), int(110 / (max(map(len, titles)) + 8))))  # of the legend

    def draw(figure: Figure) -> None:
        grid = figure.subplots(len(sides), len(_SIMILARITIES), squeeze=False)
        for side, panels in zip(sides, grid, strict=True):
            for (measure, title), axes in zip(_SIMILARITIES.items(), panels, strict=True):
                lines = []
                for number, report in enumerate(reports):
                    points = [(row.layer, getattr(row, measure)) for row in report.rows[side]]
                    lines.append(_draw_line(axes, [point for point in points if point[1] is not None], number))
                _finish(axes, title, f"{side} layer", "cosine similarity")
        _draw_legend(figure, lines, titles, columns)

    write_figure(path, (11.0, 3.2 * len(sides) + 0.25 * (1 + len(titles) // columns)), draw)


def write_gates(path: str, titles: Sequence[str], reports: Sequence[StackReport[CellStatistics]]) -> None:
    """Draw the gates and, below, the norms of each side, one checkpoint below another; bands are one deviation wide."""
    sides = list(reports[0].rows)

    def draw(figure: Figure) -> None:
        bands = figure.subfigures(len(reports), 1, squeeze=False)[:, 0]
        for band, title, report in zip(bands, titles, reports, strict=True):
            band.suptitle(title, parse_math=False)
            grid = band.subplots(2, len(sides), squeeze=False, height_ratios=(3, 2))
            for side, (gates, norms) in zip(sides, grid.T, strict=True):
                rows = report.rows[side]
                two_cells = any(row.cell for row in rows)
                label = "layer (halves: the cell between its attentions)" if two_cells else "layer"
                lines = [
                    _draw_band(gates if field in _GATES else norms, rows, field, number)
                    for number, field in enumerate((*_GATES, *_NORMS))
                ]
                _finish(gates, side, "", "gate")
                gates.set_ylim(0, 1)
                _finish(norms, "", label, "L2 norm")
                norms.set_ylim(bottom=0)
            _draw_legend(band, lines, [*_GATES.values(), *_NORMS.values()], len(lines))

    write_figure(path, (max(1.0 + 4.5 * len(sides), 7.5), 5.4 * len(reports)), draw)


def write_source_weights(path: str, titles: Sequence[str], reports: Sequence[StackReport[SourceWeight]]) -> None:
    """Draw a heat map of sources and readers for each side that has weights, one checkpoint below another.

    Shown are shares of the sum of absolute weights that a layer reads with, as sizes differ between connections.
    """
    shown = [[(side, weights_matrix(rows)) for side, rows in report.rows.items() if rows] for report in reports]
    matrices = [matrix for of_report in shown for _, matrix in of_report]
    columns = max(map(len, shown))

    def draw(figure: Figure) -> None:
        bands = figure.subfigures(len(reports), 1, squeeze=False)[:, 0]
        for band, title, of_report in zip(bands, titles, shown, strict=True):
            band.suptitle(title, parse_math=False)
            panels = band.subplots(1, columns, squeeze=False)[0]
            for axes in panels[len(of_report) :]:
                axes.set_axis_off()
            for axes, (side, (readers, sources, rows)) in zip(panels, of_report, strict=False):
                image = axes.imshow(list(map(_shares, rows)), vmin=-1, vmax=1, cmap="RdBu", aspect="auto")
                axes.set_title(side)
                axes.set_ylabel("layer that reads")
                axes.set_yticks(range(len(readers)), readers)
                axes.set_xticks(range(len(sources)), sources, rotation=90)
            band.colorbar(image, ax=list(panels), label="share of the weights")

    width, height = max(len(sources) for _, sources, _ in matrices), max(len(readers) for readers, *_ in matrices)
    write_figure(path, (2.0 + columns * (1.2 + 0.3 * width), len(reports) * (2.4 + 0.25 * height)), draw)


def _shares(weights: Sequence[float | None]) -> list[float]:
    """Return weights as parts of the sum of their absolute values; NaN for those that are missing."""
    whole = sum(abs(weight) for weight in weights if weight is not None) or 1.0
    return [math.nan if weight is None else weight / whole for weight in weights]


def _draw_band(axes: Axes, rows: Sequence[CellStatistics], field: str, number: int) -> Line2D:
    """Draw the mean of each cell as a line, which is returned, in a band of one deviation on both sides."""
    places = [row.layer - 0.5 if row.cell == "a" else row.layer for row in rows]
    values: list[MeanDeviation] = [getattr(row, field) for row in rows]
    line = _draw_line(axes, [(place, value.mean) for place, value in zip(places, values, strict=True)], number)
    color = COLORS[number]
    if len(places) == 1:  # a band of one point has no width
        axes.errorbar(places, [values[0].mean], [values[0].deviation], color=color, capsize=5 + 3 * number)
        return line
    low, high = ([value.mean + sign * value.deviation for value in values] for sign in (-1, 1))
    axes.fill_between(places, low, high, color=color, alpha=0.1, linewidth=0)
    for edge in (low, high):
        axes.plot(places, edge, color=color, linewidth=0.7, linestyle=":")
    return line


def _draw_line(axes: Axes, points: Sequence[tuple[float, float]], number: int) -> Line2D:
    """Draw line ``number``, from 0, of a panel."""
    (line,) = axes.plot(
        *zip(*points, strict=True),
        color=COLORS[number % len(COLORS)],
        marker=MARKERS[number % len(MARKERS)],
        linestyle=_DASHES[number // len(COLORS) % len(_DASHES)],
        markersize=4.5,
        markevery=-(-len(points) // _MARKERS_SHOWN),
    )
    return line


def _finish(axes: Axes, title: str, x_label: str, y_label: str) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_title(title, fontsize=11)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.grid(True)


def _draw_legend(figure: Any, lines: Sequence[Line2D], names: Sequence[str], columns: int) -> None:
    """Draw a legend below all panels; names are set afterwards, as a legend would interpret ``$`` and a first ``_``."""
    legend = figure.legend(lines, [str(number) for number in range(len(lines))], loc="outside lower center",
        ncols=columns, frameon=False)  # fmt: skip
    for text, name in zip(legend.get_texts(), names, strict=True):
        text.set_parse_math(False)
        text.set_text(name)
