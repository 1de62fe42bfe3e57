"""Probed models as a table, JSON and a figure.

Source: "Transformer with Depth-Wise LSTM" (the first version of "Rewiring the Transformer with Depth-Wise LSTMs"),
Tables 6 and 7: the score with each layer linear, and the change relative to the intact model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fairseq_depthwise.analysis.analysis import draw_legend, draw_line, finish_panel
from fairseq_depthwise.analysis.probe.record import NONE, ProbeRow
from fairseq_depthwise.figures import write_figure
from fairseq_depthwise.models.linearized.model import SIDES
from fairseq_depthwise.tables import aligned

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: State of a row -> its title.
_STATES = {"": "", "pair": ", (Out, Cell) linear", "output": ", Out linear, Cell passed on"}


@dataclass(frozen=True)
class ProbedModel:
    """The results of a probe: rows of the intact model and of each layer, for each state."""

    checkpoint: str
    architecture: str
    rows: tuple[ProbeRow, ...]

    @property
    def states(self) -> tuple[str, ...]:
        """The states of the rows: "" for models whose layers have one output."""
        return tuple(dict.fromkeys(row.state for row in self.rows[1:]))

    def change(self, row: ProbeRow) -> float | None:
        """Return the change of the score relative to the intact model, in per cent; negative for a loss."""
        intact = self.rows[0].score
        return 100 * (row.score - intact) / intact if intact else None

    def of_side(self, state: str, side: str) -> dict[int, ProbeRow]:
        """Return number of a layer, from 1 -> its row."""
        names = {row.layer.partition(".")[::2]: row for row in self.rows if row.state == state}
        return {int(number): row for (of, number), row in names.items() if of == side}

    def document(self) -> dict[str, Any]:
        """Return one object of JSON; ``change`` is in per cent of the intact model's score, ``unexplained`` a share."""
        columns = ("layer", "state", "score", "change", "error", "unexplained", "positions")
        rows = [{**asdict(row), "change": self.change(row)} for row in self.rows]
        intact = {name: rows[0][name] for name in ("metric", "signature", "score")}
        rows = [{column: row[column] for column in columns} for row in rows]
        return {"checkpoint": self.checkpoint, "architecture": self.architecture, **intact, "rows": rows}


def as_text(models: Sequence[ProbedModel]) -> str:
    """Return the paper's table for each model and state."""
    return "\n".join(_table(model, state) for model in models for state in model.states)


def _table(model: ProbedModel, state: str) -> str:
    intact = model.rows[0]
    names = ["layer", *(name for side in SIDES for name in (f"{side} {intact.metric}", "change %", "unexplained %"))]
    lines = [names, [NONE, *(f"{intact.score:.2f}", "0.00", "-") * len(SIDES)]]
    sides = [model.of_side(state, side) for side in SIDES]
    for number in sorted(set().union(*sides)):
        lines.append([str(number), *(cell for rows in sides for cell in _cells(model, rows.get(number)))])
    return f"{model.checkpoint}: {model.architecture}{_STATES[state]}\n{intact.signature}\n{aligned(lines)}"


def _cells(model: ProbedModel, row: ProbeRow | None) -> list[str]:
    if row is None:
        return ["-", "-", "-"]
    change = model.change(row)
    return [
        f"{row.score:.2f}",
        "-" if change is None else f"{change:+.2f}",
        "-" if row.unexplained is None else f"{100 * row.unexplained:.2f}",
    ]


def write_figure_of(path: str, models: Sequence[ProbedModel], titles: Sequence[str]) -> None:
    """Draw the change of the score over layers, encoder and decoder side by side, a line for each model and state."""
    lines = [
        (f"{title}{_STATES[state]}", model, state)
        for title, model in zip(titles, models, strict=True)
        for state in model.states
    ]
    sides = [side for side in SIDES if any(model.of_side(state, side) for _, model, state in lines)]
    deepest = max(number for _, model, state in lines for side in sides for number in model.of_side(state, side))

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, len(sides), sharey=True, squeeze=False)[0]
        for axes, side in zip(panels, sides, strict=True):
            axes.axhline(0, color="black", linewidth=0.8)
            drawn = []
            for number, (_, model, state) in enumerate(lines):
                changes = {layer: model.change(row) for layer, row in model.of_side(state, side).items()}
                points = [(layer, math.nan if change is None else change) for layer, change in changes.items()]
                drawn.append(draw_line(axes, points, number))
            finish_panel(axes, side, "layer made linear", "")
        panels[0].set_ylabel(f"change of {models[0].rows[0].metric} (%)")
        draw_legend(figure, drawn, [label for label, _, _ in lines])

    write_figure(path, (len(sides) * min(3.2 + 0.12 * deepest, 8), 3.2 + 0.25 * len(lines)), draw)
