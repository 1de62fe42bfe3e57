"""Probed models as a table, JSON and a figure.

Source: "Transformer with Depth-Wise LSTM" (the first version of "Rewiring the Transformer with Depth-Wise LSTMs"),
Tables 6 and 7: the score with each layer linear, and the change relative to the intact model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairseq_depthwise.analysis.probe.record import BASELINE, ProbeRow
from fairseq_depthwise.figures import draw_legend, draw_line, finish_panel, write_figure
from fairseq_depthwise.modules.stack import SIDES
from fairseq_depthwise.tables import aligned, decimal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: State of a row -> its title.
_STATE_TITLES = {"": "", "pair": ", (Out, Cell) linear", "output": ", Out linear, Cell passed on"}


@dataclass(frozen=True)
class ProbedModel:
    """The results of a probe: the row of the intact model, then a row for each state and layer."""

    checkpoint: str
    architecture: str
    rows: tuple[ProbeRow, ...]

    @property
    def intact(self) -> ProbeRow:
        """The row in which no layer is replaced."""
        return self.rows[0]

    @property
    def states(self) -> tuple[str, ...]:
        """The states of the rows: "" for models whose layers have one output."""
        return tuple(dict.fromkeys(row.state for row in self.rows[1:]))

    def compute_change(self, row: ProbeRow) -> float | None:
        """Return the change of the score in percent of the intact model's, negative for a loss; None if that is 0."""
        if not self.intact.score:
            return None
        return 100 * (row.score - self.intact.score) / self.intact.score

    def select_rows(self, state: str, side: str) -> dict[int, ProbeRow]:
        """Return the rows of a state and a side by the number of their layer, from 1."""
        rows = {}
        for row in self.rows:
            row_side, _, layer = row.layer.partition(".")
            if row.state == state and row_side == side:
                rows[int(layer)] = row
        return rows

    def to_json(self) -> dict[str, Any]:
        """Return the results as a JSON object: ``change`` in percent, ``unexplained`` from 0 to 1."""
        rows = []
        for row in self.rows:
            document = {
                "layer": row.layer,
                "state": row.state,
                "score": row.score,
                "change": self.compute_change(row),
                "error": row.error,
                "unexplained": row.unexplained,
                "positions": row.positions,
            }
            rows.append(document)
        return {
            "checkpoint": self.checkpoint,
            "architecture": self.architecture,
            "metric": self.intact.metric,
            "signature": self.intact.signature,
            "score": self.intact.score,
            "rows": rows,
        }


# --- table -----------------------------------------------------------------------------------------------------------


def format_tables(models: Sequence[ProbedModel]) -> str:
    """Return the paper's table for each model and state."""
    tables = []
    for model in models:
        tables += [_format_table(model, state) for state in model.states]
    return "\n".join(tables)


def _format_table(model: ProbedModel, state: str) -> str:
    """Return a line for each layer number, with cells for the encoder and cells for the decoder."""
    intact = model.intact
    # The score of the intact model is on both sides.
    header, baseline = ["layer"], [BASELINE]
    for side in SIDES:
        header += [f"{side} {intact.metric}", "change %", "unexplained %"]
        baseline += [f"{intact.score:.2f}", "0.00", "-"]

    rows_by_side = [model.select_rows(state, side) for side in SIDES]
    lines = [header, baseline]
    # Encoder and decoder may have different depths, or only some layers were replaced.
    for layer in sorted(set().union(*rows_by_side)):
        line = [str(layer)]
        for rows in rows_by_side:
            line += _format_cells(model, rows.get(layer))
        lines.append(line)
    return f"{model.checkpoint}: {model.architecture}{_STATE_TITLES[state]}\n{intact.signature}\n{aligned(lines)}"


def _format_cells(model: ProbedModel, row: ProbeRow | None) -> list[str]:
    if row is None:
        return ["-", "-", "-"]
    change, unexplained = model.compute_change(row), _unexplained_percent(row)
    return [decimal(row.score, ".2f"), decimal(change, "+.2f"), decimal(unexplained, ".2f")]


def _unexplained_percent(row: ProbeRow) -> float | None:
    return None if row.unexplained is None else 100 * row.unexplained


# --- figure ----------------------------------------------------------------------------------------------------------


def write_probe_figure(path: str, models: Sequence[ProbedModel], titles: Sequence[str]) -> None:
    """Draw a measure over layers, encoder and decoder side by side, a line for each model and state.

    It is the change of the score; or, where an intact model scores 0 and so cannot lose, what the linear layers leave
    unexplained.
    """
    shows_change = all(model.intact.score for model in models)
    curves, labels = [], []
    for title, model in zip(titles, models, strict=True):
        for state in model.states:
            curves.append((model, state))
            labels.append(f"{title}{_STATE_TITLES[state]}")
    # A side of which no layer was replaced has no panel.
    layers: dict[str, list[int]] = {side: [] for side in SIDES}
    for model, state in curves:
        for side in SIDES:
            layers[side] += model.select_rows(state, side)
    sides = [side for side in SIDES if layers[side]]
    deepest = max(max(layers[side]) for side in sides)

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, len(sides), sharey=True, squeeze=False)[0]
        for axes, side in zip(panels, sides, strict=True):
            lines = _draw_side(axes, side, curves, shows_change)
        label = f"change of {models[0].intact.metric} (%)" if shows_change else "unexplained (%)"
        panels[0].set_ylabel(label)
        draw_legend(figure, lines, labels)

    # Inches: a panel is wider for deep models, and the legend has a line for each curve.
    width = len(sides) * min(3.2 + 0.12 * deepest, 8)
    height = 3.2 + 0.25 * len(curves)
    write_figure(path, (width, height), draw)


def _draw_side(axes: Axes, side: str, curves: Sequence[tuple[ProbedModel, str]], shows_change: bool) -> list[Any]:
    """Draw the layers of one side, and return the lines."""
    axes.axhline(0, color="black", linewidth=0.8)
    lines = []
    for number, (model, state) in enumerate(curves):
        points = []
        for layer, row in model.select_rows(state, side).items():
            value = model.compute_change(row) if shows_change else _unexplained_percent(row)
            points.append((layer, math.nan if value is None else value))
        lines.append(draw_line(axes, points, number))
    finish_panel(axes, side, "layer made linear", "")
    return lines
