"""What layers take from below: gates and state norms of a depth-wise LSTM, or the weights of other connections.

Source of gates and states: "Rewiring the Transformer with Depth-Wise LSTMs", Equations 2-4, 7 and 8. Statistics are
over real positions, ends of sentences included, and are summed over batches in float64.

example:
  fairseq-depthwise gates checkpoints/checkpoint_best.pt --data data-bin --output gates.png
  fairseq-depthwise gates 6l.pt 12l.pt --data data-bin --side encoder --json
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor

from fairseq_compat import UserError
from fairseq_depthwise.analysis import connection_weights
from fairseq_depthwise.analysis.analysis import (
    MeanDeviation,
    RunningMoments,
    StackBatch,
    StackReport,
    add_checkpoint_options,
    draw_legend,
    draw_line,
    finish_panel,
    report_checkpoints,
    report_on,
    sides_of,
)
from fairseq_depthwise.analysis.loaded_model import LoadedModel
from fairseq_depthwise.figures import write_figure
from fairseq_depthwise.models.depthwise_lstm.cell import DepthwiseState, GateValues
from fairseq_depthwise.models.depthwise_lstm.layers import DepthwiseEncoderLayer

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

#: Below the first a gate is nearly shut, above the second nearly open.
SHUT, OPEN = 0.1, 0.9

#: Field of a row -> name of its line.
_GATES = {"input_gate": "input gate", "forget_gate": "forget gate", "output_gate": "output gate"}
_NORMS = {"cell_norm": "cell state", "output_norm": "output"}


@dataclass(frozen=True)
class GateDistribution(MeanDeviation):
    """The values of a gate over positions and features."""

    shut: float
    open: float


@dataclass(frozen=True)
class CellStatistics:
    """The statistics of one cell: gates over positions and features, and L2 norms of its states over positions.

    Where a layer has two cells (``--decoder-merge two-cells``) ``cell`` is "a" for the one between self- and
    cross-attention and "b" for the one above both; else None.
    """

    layer: int
    cell: str | None
    input_gate: GateDistribution
    forget_gate: GateDistribution
    output_gate: GateDistribution
    cell_norm: MeanDeviation
    output_norm: MeanDeviation


class CellSums:
    """The statistics of one cell, summed over batches."""

    def __init__(self, layer: int, cell: str | None = None) -> None:
        self.layer = layer
        self.cell = cell
        #: Of each gate its values, and whether they are below and above; and norms.
        self._sums: dict[str, RunningMoments] = defaultdict(RunningMoments)

    def add(self, gates: GateValues, state: DepthwiseState, padding: Tensor) -> None:
        """Add a step: its gates and its new state, T x B x d each. ``padding``: B x T, True at padding."""
        real = padding.logical_not().t()
        for name, gate in zip(_GATES, gates, strict=True):
            values = gate[real]
            self._sums[name].add(values)
            self._sums[f"{name} shut"].add(values < SHUT)
            self._sums[f"{name} open"].add(values > OPEN)
        for name, vectors in zip(_NORMS, (state.cell, state.output), strict=True):
            self._sums[name].add(vectors[real].double().norm(dim=-1))

    def value(self) -> CellStatistics:
        """Return the statistics of all steps."""
        of = {name: sums.value() for name, sums in self._sums.items()}
        gates = [
            GateDistribution(**vars(of[name]), shut=of[f"{name} shut"].mean, open=of[f"{name} open"].mean)
            for name in _GATES
        ]
        return CellStatistics(self.layer, self.cell, *gates, *(of[name] for name in _NORMS))


def has_gates(model: Any) -> bool:
    """Return whether a model's layers are connected by cells with gates."""
    layer = model.encoder.layers[0]
    return isinstance(layer, DepthwiseEncoderLayer) and layer.cell.has_gates


def cells_of(layers: Iterable[Any]) -> Iterator[tuple[int, str | None, Any]]:
    """Yield the cells of a stack in the order in which they run: number of the layer, place in it, cell."""
    for number, layer in enumerate(layers, start=1):
        middle = getattr(layer, "middle_cell", None)
        if middle is not None:
            yield number, "a", middle
        yield number, None if middle is None else "b", layer.cell


def measure_gates(
    model: Any, sides: Iterable[str], batches: Iterable[StackBatch]
) -> dict[str, tuple[CellStatistics, ...]]:
    """Run batches and return the statistics of each side's cells, whatever the size of the batches."""
    sums: dict[str, list[CellSums]] = {side: [] for side in sides}
    padding: dict[str, Tensor] = {}

    def add(side: str, into: CellSums, cell: Any, inputs: tuple[Tensor, DepthwiseState], state: DepthwiseState) -> None:
        # The gates are computed once more: fused kernels do not return them.
        into.add(cell.gate_values(*inputs), state, padding[side])

    with ExitStack() as hooks:
        for side, of_side in sums.items():
            for layer, place, cell in cells_of(getattr(model, side).layers):
                of_side.append(CellSums(layer, place))
                hooks.callback(cell.register_forward_hook(partial(add, side, of_side[-1])).remove)
        for batch in batches:
            padding = batch.padding
            batch.run()
    return {side: tuple(cell.value() for cell in of_side) for side, of_side in sums.items()}


def as_text(report: StackReport) -> str:
    """Return a table of the gates and norms of each cell."""
    if not _has_cells(report):
        return connection_weights.as_text(report)

    def of_side(rows: Sequence[CellStatistics]) -> list[list[str]]:
        lines = [["layer", *(cell for gate in _GATES.values() for cell in (gate, "<0.1", ">0.9"))]]
        lines[0] += ["cell norm", "output norm"]
        for row in rows:
            line = [f"{row.layer}{row.cell or ''}"]
            for gate in (row.input_gate, row.forget_gate, row.output_gate):
                line += [f"{gate.mean:.3f} ±{gate.deviation:.3f}", f"{gate.shut:.0%}", f"{gate.open:.0%}"]
            lines.append(
                [*line, *(f"{norm.mean:.2f} ±{norm.deviation:.2f}" for norm in (row.cell_norm, row.output_norm))]
            )
        return lines

    legend = "gates: mean, deviation and share of values below 0.1 and above 0.9; norms (L2): mean and deviation\n"
    if any(row.cell for rows in report.rows.values() for row in rows):
        legend += "two cells in a layer: a between its attentions, b above both\n"
    return report.table(legend, of_side)


def write_gates(path: str, titles: Sequence[str], reports: Sequence[StackReport]) -> None:
    """Draw one checkpoint below another."""
    sizes = [
        (max(1.0 + 4.5 * len(report.rows), 7.5), 5.4) if _has_cells(report) else connection_weights.figure_size(report)
        for report in reports
    ]
    widths, heights = zip(*sizes, strict=True)

    def draw(figure: Figure) -> None:
        bands = figure.subfigures(len(reports), 1, squeeze=False, height_ratios=heights)[:, 0]
        for band, title, report in zip(bands, titles, reports, strict=True):
            band.suptitle(title, parse_math=False)
            (_draw_cells if _has_cells(report) else connection_weights.draw_weights)(band, report)

    write_figure(path, (max(widths), sum(heights)), draw)


def _has_cells(report: StackReport) -> bool:
    return any(isinstance(row, CellStatistics) for rows in report.rows.values() for row in rows)


def _draw_cells(band: Any, report: StackReport) -> None:
    """Draw the gates and, below, the norms of each side; bands are one deviation wide."""
    grid = band.subplots(2, len(report.rows), squeeze=False, height_ratios=(3, 2))
    for (side, rows), (gates, norms) in zip(report.rows.items(), grid.T, strict=True):
        two_cells = any(row.cell for row in rows)
        lines = [
            _draw_band(gates if field in _GATES else norms, rows, field, number)
            for number, field in enumerate((*_GATES, *_NORMS))
        ]
        finish_panel(gates, side, "", "gate")
        gates.set_ylim(0, 1)
        finish_panel(norms, "", "layer (halves: the cell between its attentions)" if two_cells else "layer", "L2 norm")
        norms.set_ylim(bottom=0)
    draw_legend(band, lines, [*_GATES.values(), *_NORMS.values()], len(lines))


def _draw_band(axes: Axes, rows: Sequence[CellStatistics], field: str, number: int) -> Line2D:
    """Draw the mean of each cell as a line, which is returned, in a band of one deviation on both sides."""
    places = [row.layer - 0.5 if row.cell == "a" else row.layer for row in rows]
    values: list[MeanDeviation] = [getattr(row, field) for row in rows]
    line = draw_line(axes, [(place, value.mean) for place, value in zip(places, values, strict=True)], number)
    low, high = ([value.mean + sign * value.deviation for value in values] for sign in (-1, 1))
    axes.fill_between(places, low, high, color=line.get_color(), alpha=0.1)
    return line


def _measure(loaded: LoadedModel, options: argparse.Namespace) -> StackReport:
    model, sides = loaded.model, sides_of(options)
    if has_gates(model):
        if options.ablate:
            raise UserError(f"--ablate is for connections with weights, and {loaded.path} has gates; leave it out")
        return report_on(loaded, options, partial(measure_gates, model, sides))
    if not any(connection_weights.has_weights(getattr(model, side)) for side in sides):
        raise UserError(
            f"{loaded.path} is of the architecture {loaded.architecture}, with neither gates nor weights over depth in "
            f"its {' and '.join(sides)}; give a depthwise_lstm_transformer, or an sdt_transformer with connections"
        )
    measure = partial(connection_weights.measure_weights, model, sides, ablate=options.ablate)
    return report_on(loaded, options, measure)


def add_to(parser: argparse.ArgumentParser) -> None:
    add_checkpoint_options(
        parser,
        models="depthwise_lstm_transformer models, or of sdt_transformer models",
        drawn="gates and norms over the layers, or weights",
        side="both",
    )
    parser.add_argument(
        "--ablate", action="store_true",
        help="beside each weight, how much the loss rises without its source; runs the data once more for each",
    )  # fmt: skip


def run(options: argparse.Namespace) -> None:
    report_checkpoints(options, _measure, as_text, {"output": write_gates})
