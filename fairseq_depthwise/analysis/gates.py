"""How far the gates of a depth-wise LSTM are open, and how large its states become, layer by layer.

Source: "Rewiring the Transformer with Depth-Wise LSTMs": gates (Equations 2-4), cell state (7) and output (8).
Statistics are over non-padding positions, including end-of-sentence, and are accumulated over batches in float64.

Models with other connections over depth have weights instead of gates: the command then shows these, which
``connection_weights.py`` measures.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from torch import Tensor

from fairseq_compat import UserError
from fairseq_depthwise.analysis import connection_weights
from fairseq_depthwise.analysis.analysis import (
    LayerRow,
    MeanAndDeviation,
    RunningMoments,
    StackBatch,
    StackReport,
    make_report,
    report_checkpoints,
    select_sides,
)
from fairseq_depthwise.analysis.loaded_model import LoadedModel
from fairseq_depthwise.figures import draw_legend, draw_line, finish_panel, write_figure
from fairseq_depthwise.models.depthwise_lstm.cell import DepthwiseState

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.lines import Line2D

#: A gate is nearly shut below the first, and nearly open above the second.
SHUT, OPEN = 0.1, 0.9

#: Distance between the lines of neighboring gates in a panel, in layers: their bars of deviation stand side by side.
_BESIDE = 0.14

#: The measured norms -> titles of their states in the figure.
_NORMS = {"cell_norm": "cell state", "output_norm": "output"}


# --- cells -----------------------------------------------------------------------------------------------------------


@runtime_checkable
class GatedCell(Protocol):
    """The interface of a cell whose gates are measured, here and in ``POST /explain``."""

    #: Names of its gates, such as "forget_gate".
    gate_names: tuple[str, ...]

    def gate_values(self, attended: Tensor, state: DepthwiseState) -> tuple[Tensor, ...]:
        """Return the gates (T x B x d each) that the cell's ``forward`` computes from the same arguments."""


def find_gated_cells(stack: Any) -> list[tuple[int, str | None, Any]]:
    """Return the gated cells of a stack in the order in which they run: (layer number, cell label, cell).

    The label is None, or, in a decoder layer with two cells, "a" for the one between its attentions and "b" for the
    one after both.
    """
    cells: list[tuple[int, str | None, Any]] = []
    for number, layer in enumerate(stack.layers, start=1):
        middle = getattr(layer, "middle_cell", None)
        last = getattr(layer, "cell", None)
        if isinstance(middle, GatedCell):  # --decoder-merge two-cells, whose second cell is gated, too
            cells += [(number, "a", middle), (number, "b", last)]
        elif isinstance(last, GatedCell):
            cells.append((number, None, last))
    return cells


# --- measures --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GateDistribution(MeanAndDeviation):
    """The values of a gate over positions and features; ``shut`` and ``open``: fractions nearly shut or open."""

    shut: float
    open: float


@dataclass(frozen=True)
class CellStatistics(LayerRow):
    """The statistics of one cell.

    Attributes:
        layer: number of the layer, from 1.
        cell: its label; see :func:`find_gated_cells`.
        gates: gate values over positions and features.
        norms: L2 norms of the states over positions.
    """

    cell: str | None
    gates: Mapping[str, GateDistribution]
    norms: Mapping[str, MeanAndDeviation]

    def to_json(self) -> dict[str, Any]:
        """Return the row as a JSON object, with an entry for each gate and norm."""
        document: dict[str, Any] = {"layer": self.layer, "cell": self.cell}
        for name, statistics in {**self.gates, **self.norms}.items():
            document[name] = vars(statistics)
        return document


class CellSums:
    """Running statistics of one cell."""

    def __init__(self, layer: int, cell: str | None, gate_names: Sequence[str]) -> None:
        self.layer = layer
        self.cell = cell
        self._gates = {name: RunningMoments() for name in gate_names}
        self._shut = {name: RunningMoments() for name in gate_names}
        self._open = {name: RunningMoments() for name in gate_names}
        self._norms = {name: RunningMoments() for name in _NORMS}

    def add(self, gates: Sequence[Tensor], state: DepthwiseState, padding: Tensor) -> None:
        """Add a step: its gates and its new state, T x B x d each. ``padding``: B x T, True at padding."""
        is_token = padding.logical_not().t()  # T x B
        for name, gate in zip(self._gates, gates, strict=True):
            values = gate[is_token]  # N x d
            self._gates[name].add(values)
            self._shut[name].add(values < SHUT)
            self._open[name].add(values > OPEN)
        self._norms["cell_norm"].add(state.cell[is_token].double().norm(dim=-1))
        self._norms["output_norm"].add(state.output[is_token].double().norm(dim=-1))

    def compute(self) -> CellStatistics:
        """Return the statistics of all steps."""
        gates = {}
        for name, moments in self._gates.items():
            gate = moments.compute()
            gates[name] = GateDistribution(
                gate.mean, gate.deviation, shut=self._shut[name].mean, open=self._open[name].mean
            )
        norms = {name: moments.compute() for name, moments in self._norms.items()}
        return CellStatistics(self.layer, self.cell, gates, norms)


def measure_gates(model: Any, sides: Iterable[str], batches: Iterable[StackBatch]) -> dict[str, list[CellStatistics]]:
    """Run batches and return the statistics of each side's cells, which do not depend on the batch size."""
    sums: dict[str, list[CellSums]] = {side: [] for side in sides}
    # Side -> padding (B x T) of the batch that is running, which observe() reads.
    padding: dict[str, Tensor] = {}

    def observe(
        side: str, cell_sums: CellSums, cell: Any, inputs: tuple[Tensor, DepthwiseState], state: DepthwiseState
    ) -> None:
        # A cell returns no gates, so they are computed once more.
        cell_sums.add(cell.gate_values(*inputs), state, padding[side])

    # The hooks are removed even if a batch fails: the model may be a server's.
    with ExitStack() as hooks:
        for side, side_sums in sums.items():
            for layer, label, cell in find_gated_cells(getattr(model, side)):
                cell_sums = CellSums(layer, label, cell.gate_names)
                side_sums.append(cell_sums)
                hook = cell.register_forward_hook(partial(observe, side, cell_sums))
                hooks.callback(hook.remove)
        for batch in batches:
            padding = batch.padding
            batch.run()  # calls observe for each cell
    rows = {}
    for side, side_sums in sums.items():
        rows[side] = [cell_sums.compute() for cell_sums in side_sums]
    return rows


# --- table -----------------------------------------------------------------------------------------------------------


def format_report(report: StackReport) -> str:
    """Return a table of the gates and norms of each cell, or of the weights of connections."""
    if not _has_cells(report):
        return connection_weights.format_report(report)
    legend = (
        f"gates: mean, deviation and share of values below {SHUT:g} and above {OPEN:g}; "
        "norms (L2): mean and deviation\n"
    )
    if any(row.cell for row in _collect_cells(report)):
        legend += "two cells in a layer: a: between the attentions, b: after both\n"
    return report.format_tables(legend, _format_rows)


def _format_rows(rows: Sequence[CellStatistics]) -> list[list[str]]:
    header = ["layer"]
    for name in rows[0].gates:
        header += [_format_gate_name(name), f"<{SHUT:g}", f">{OPEN:g}"]
    header += ["cell norm", "output norm"]
    lines = [header]
    for row in rows:
        line = [f"{row.layer}{row.cell or ''}"]
        for gate in row.gates.values():
            line += [f"{gate.mean:.3f} ±{gate.deviation:.3f}", f"{gate.shut:.0%}", f"{gate.open:.0%}"]
        for norm in row.norms.values():
            line.append(f"{norm.mean:.2f} ±{norm.deviation:.2f}")
        lines.append(line)
    return lines


def _format_gate_name(name: str) -> str:
    return name.replace("_", " ")


def _collect_cells(report: StackReport) -> list[CellStatistics]:
    """Return the rows of all sides that are statistics of cells."""
    cells = []
    for rows in report.rows.values():
        cells += [row for row in rows if isinstance(row, CellStatistics)]
    return cells


def _has_cells(report: StackReport) -> bool:
    return bool(_collect_cells(report))


# --- figure ----------------------------------------------------------------------------------------------------------


def write_gates(path: str, titles: Sequence[str], reports: Sequence[StackReport]) -> None:
    """Draw one checkpoint below another."""
    sizes = [_compute_figure_size(report) for report in reports]
    width = max(width for width, _ in sizes)
    heights = [height for _, height in sizes]

    def draw(figure: Figure) -> None:
        bands = figure.subfigures(len(reports), 1, squeeze=False, height_ratios=heights)[:, 0]
        for band, title, report in zip(bands, titles, reports, strict=True):
            band.suptitle(title, parse_math=False)
            if _has_cells(report):
                _draw_cells(band, report)
            else:
                connection_weights.draw_weights(band, report)

    write_figure(path, (width, sum(heights)), draw)


def _compute_figure_size(report: StackReport) -> tuple[float, float]:
    """Return width and height of a report's part of the figure, in inches."""
    if _has_cells(report):
        return max(1.0 + 4.5 * len(report.rows), 7.5), 5.4
    return connection_weights.compute_figure_size(report)


def _draw_cells(figure: SubFigure, report: StackReport) -> None:
    """Draw the gates and, below, the norms of each side."""
    grid = figure.subplots(2, len(report.rows), squeeze=False, height_ratios=(3, 2))
    names = [_format_gate_name(gate) for gate in _collect_cells(report)[0].gates]
    names += _NORMS.values()
    # A column for each side, with two panels one above the other.
    for (side, rows), (upper, lower) in zip(report.rows.items(), grid.T, strict=True):
        gates = [[row.gates[gate] for row in rows] for gate in rows[0].gates]
        norms = [[row.norms[norm] for row in rows] for norm in _NORMS]
        lines = _draw_means(upper, rows, gates, 0)
        lines += _draw_means(lower, rows, norms, len(gates))
        finish_panel(upper, title=side, x_label="", y_label="gate, mean and deviation")
        upper.set_ylim(0, 1)
        has_two_cells = any(row.cell for row in rows)
        label = "layer (halves: the cell between its attentions)" if has_two_cells else "layer"
        finish_panel(lower, title="", x_label=label, y_label="L2 norm")
        lower.set_ylim(bottom=0)
    # One legend serves all panels: every side has the same gates and norms, drawn in the same styles.
    draw_legend(figure, lines, names, columns=len(lines))


def _draw_means(
    axes: Axes, rows: Sequence[CellStatistics], measures: Sequence[Sequence[MeanAndDeviation]], first: int
) -> list[Line2D]:
    """Draw the mean of each measure of the cells, with bars of one standard deviation; return the lines.

    The lines have the numbers from ``first`` on.
    """
    lines = []
    for number, values in enumerate(measures):
        beside = _BESIDE * (number - (len(measures) - 1) / 2)
        # The cell between two attentions is drawn half a layer below the other.
        places = [row.layer + beside - (0.5 if row.cell == "a" else 0) for row in rows]
        means = [value.mean for value in values]
        line = draw_line(axes, list(zip(places, means, strict=True)), first + number)
        lowest = [value.mean - value.deviation for value in values]
        highest = [value.mean + value.deviation for value in values]
        axes.vlines(places, lowest, highest, colors=line.get_color(), linewidth=1)
        lines.append(line)
    return lines


# --- the command -----------------------------------------------------------------------------------------------------


def report_gates(options: argparse.Namespace) -> None:
    """Measure, print and draw what ``fairseq-depthwise gates`` was asked for."""
    report_checkpoints(options, _measure_model, format_report, {"output": write_gates})


def _measure_model(loaded: LoadedModel, options: argparse.Namespace) -> StackReport:
    """Measure gates if the model has any, else the weights of connections."""
    model, sides = loaded.model, select_sides(options)
    if find_gated_cells(model.encoder):  # if the encoder has gates, so has the decoder
        if options.ablate:
            raise UserError(f"--ablate is for connections with weights, and {loaded.path} has gates; leave it out")
        return make_report(loaded, options, partial(measure_gates, model, sides))
    if not any(connection_weights.has_weights(getattr(model, side)) for side in sides):
        raise UserError(
            f"{loaded.path} has the architecture {loaded.architecture}, which has neither gates nor weights over depth "
            f"in its {' and '.join(sides)}; give a depthwise_lstm_transformer, or an sdt_transformer with connections"
        )
    measure = partial(connection_weights.measure_weights, model, sides, ablate=options.ablate)
    return make_report(loaded, options, measure)
