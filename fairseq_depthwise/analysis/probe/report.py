"""Probed models as a table, JSON and a figure.

Source: "Transformer with Depth-Wise LSTM" (the first version of "Rewiring the Transformer with Depth-Wise LSTMs"),
Tables 6 and 7: the score with each layer linear, and the change relative to the intact model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairseq_depthwise.analysis.probe.record import NONE, ProbeRow
from fairseq_depthwise.figures import draw_legend, draw_line, finish_panel, write_figure
from fairseq_depthwise.modules.stack import SIDES
from fairseq_depthwise.tables import aligned, decimal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: State of a row -> its title.
_STATES = {"": "", "pair": ", (Out, Cell) linear", "output": ", Out linear, Cell passed on"}


@dataclass(frozen=True)
class ProbedModel:
    """The results of a probe: a row of the intact model, then one of each layer for each state."""

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

    def change(self, row: ProbeRow) -> float | None:
        """Return the change of the score relative to the intact model, in per cent; negative for a loss."""
        if not self.intact.score:
            return None
        return 100 * (row.score - self.intact.score) / self.intact.score

    def rows_of(self, state: str, side: str) -> dict[int, ProbeRow]:
        """Return number of a layer, from 1 -> its row."""
        rows = {}
        for row in self.rows:
            row_side, _, layer = row.layer.partition(".")
            if row.state == state and row_side == side:
                rows[int(layer)] = row
        return rows

    def document(self) -> dict[str, Any]:
        """Return one object of JSON; ``change`` is in per cent of the intact model's score, ``unexplained`` a share."""
        rows = []
        for row in self.rows:
            document = {
                "layer": row.layer,
                "state": row.state,
                "score": row.score,
                "change": self.change(row),
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


def as_text(models: Sequence[ProbedModel]) -> str:
    """Return the paper's table for each model and state."""
    tables = []
    for model in models:
        tables += [_table(model, state) for state in model.states]
    return "\n".join(tables)


def _table(model: ProbedModel, state: str) -> str:
    """Return a line for each number of a layer, with cells for the encoder and cells for the decoder."""
    intact = model.intact
    # The header, and the row of the intact model, which has the same score on both sides.
    header, first = ["layer"], [NONE]
    for side in SIDES:
        header += [f"{side} {intact.metric}", "change %", "unexplained %"]
        first += [f"{intact.score:.2f}", "0.00", "-"]

    sides = [model.rows_of(state, side) for side in SIDES]
    lines = [header, first]
    # Encoder and decoder may have different depths, or only some layers were replaced.
    for layer in sorted(set().union(*sides)):
        line = [str(layer)]
        for rows in sides:
            line += _cells(model, rows.get(layer))
        lines.append(line)
    return f"{model.checkpoint}: {model.architecture}{_STATES[state]}\n{intact.signature}\n{aligned(lines)}"


def _cells(model: ProbedModel, row: ProbeRow | None) -> list[str]:
    if row is None:
        return ["-", "-", "-"]
    unexplained = None if row.unexplained is None else 100 * row.unexplained
    return [decimal(row.score, ".2f"), decimal(model.change(row), "+.2f"), decimal(unexplained, ".2f")]


# --- figure ----------------------------------------------------------------------------------------------------------


def write_figure_of(path: str, models: Sequence[ProbedModel], titles: Sequence[str]) -> None:
    """Draw the change of the score over layers, encoder and decoder side by side, a line for each model and state."""
    curves, labels = [], []
    for title, model in zip(titles, models, strict=True):
        for state in model.states:
            curves.append((model, state))
            labels.append(f"{title}{_STATES[state]}")
    # A side of which no layer was replaced has no panel.
    layers: dict[str, list[int]] = {side: [] for side in SIDES}
    for model, state in curves:
        for side in SIDES:
            layers[side] += model.rows_of(state, side)
    sides = [side for side in SIDES if layers[side]]
    deepest = max(max(layers[side]) for side in sides)

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, len(sides), sharey=True, squeeze=False)[0]
        for axes, side in zip(panels, sides, strict=True):
            lines = _draw_side(axes, side, curves)
        panels[0].set_ylabel(f"change of {models[0].intact.metric} (%)")
        draw_legend(figure, lines, labels)

    write_figure(path, (len(sides) * min(3.2 + 0.12 * deepest, 8), 3.2 + 0.25 * len(curves)), draw)


def _draw_side(axes: Axes, side: str, curves: Sequence[tuple[ProbedModel, str]]) -> list[Any]:
    """Draw the layers of one side, and return the lines."""
    axes.axhline(0, color="black", linewidth=0.8)
    lines = []
    for place, (model, state) in enumerate(curves):
        points = []
        for layer, row in model.rows_of(state, side).items():
            # Where the intact model scores 0, nothing is drawn.
            change = model.change(row)
            points.append((layer, math.nan if change is None else change))
        lines.append(draw_line(axes, points, place))
    finish_panel(axes, side, "layer made linear", "")
    return lines
