"""Probed models as text, JSON, CSV and a figure.

Source: "Transformer with Depth-Wise LSTM" (the first version of "Rewiring the Transformer with Depth-Wise LSTMs"),
Tables 6 and 7: the score with each layer linear, and the change relative to the intact model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fairseq_depthwise.analysis.probe.probe import ProbedModel
from fairseq_depthwise.analysis.probe.record import NONE, ProbeRow
from fairseq_depthwise.figures import COLORS, MARKERS, write_figure
from fairseq_depthwise.models.linearized.model import SIDES
from fairseq_depthwise.tables import aligned, csv_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: State of a row -> its title.
_STATES = {"": "", "pair": "(Out, Cell) linear", "output": "Out linear, Cell passed on"}


def as_json(model: ProbedModel) -> dict[str, Any]:
    """Return one object; ``change`` is in per cent of the intact model's score, ``unexplained`` a share."""
    return {
        "checkpoint": model.checkpoint,
        "architecture": model.architecture,
        "metric": model.rows[0].metric,
        "signature": model.rows[0].signature,
        "score": model.rows[0].score,
        "rows": [_as_dict(model, row) for row in model.rows],
    }


def as_csv(models: Sequence[ProbedModel]) -> str:
    """Return a line for each model and replaced layer."""
    lines = [{"checkpoint": model.checkpoint, **_as_dict(model, row)} for model in models for row in model.rows]
    return csv_text(lines, list(lines[0]))


def as_text(models: Sequence[ProbedModel]) -> str:
    """Return the paper's table for each model and state."""
    return "\n".join(_table(model, state) for model in models for state in model.states or ("",))


def write_probe(path: str, models: Sequence[ProbedModel], titles: Sequence[str]) -> None:
    """Draw the change of the score over layers, encoder and decoder side by side, a line for each model and state."""
    lines = [
        (f"{title}, {_STATES[state]}" if state else title, model, state)
        for title, model in zip(titles, models, strict=True)
        for state in model.states
    ]
    sides = [side for side in SIDES if any(_of_side(model, state, side) for _, model, state in lines)]

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, len(sides), sharey=True, squeeze=False)[0]
        for axes, side in zip(panels, sides, strict=True):
            axes.axhline(0, color="black", linewidth=0.8)
            for number, (label, model, state) in enumerate(lines):
                rows = _of_side(model, state, side)
                axes.plot(
                    [layer for layer, _ in rows],
                    [model.change(row) for _, row in rows],
                    label=label,
                    color=COLORS[number % len(COLORS)],
                    marker=MARKERS[number % len(MARKERS)],
                )
            axes.set_title(side)
            axes.set_xlabel("layer made linear")
            axes.grid(axis="y")
            axes.xaxis.get_major_locator().set_params(integer=True)
        panels[0].set_ylabel(f"change of {models[0].rows[0].metric} (%)")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=1, frameon=False)

    deepest = max(max(model.depths.values()) for model in models)
    write_figure(path, (len(sides) * min(3.2 + 0.12 * deepest, 8), 3.2 + 0.25 * len(lines)), draw)


def _as_dict(model: ProbedModel, row: ProbeRow) -> dict[str, Any]:
    columns = ("layer", "state", "score", "change", "error", "unexplained", "positions")
    values = {**asdict(row), "change": model.change(row)}
    return {column: values[column] for column in columns}


def _of_side(model: ProbedModel, state: str, side: str) -> list[tuple[int, ProbeRow]]:
    """Return the rows of a side with the numbers of their layers, from 1."""
    return [
        (int(row.layer.partition(".")[2]), row)
        for row in model.rows
        if row.layer.startswith(f"{side}.") and row.state == state
    ]


def _table(model: ProbedModel, state: str) -> str:
    intact = model.rows[0]
    head = f"{model.checkpoint}: {model.architecture}{f', {_STATES[state]}' if state else ''}\n{intact.signature}\n"
    names = ["layer", *(name for side in SIDES for name in (f"{side} {intact.metric}", "change %", "unexplained %"))]
    score = f"{intact.score:.2f}"
    lines = [names, [NONE, score, "0.00", "-", score, "0.00", "-"]]
    sides = [dict(_of_side(model, state, side)) for side in SIDES]
    for number in sorted(set().union(*sides)):
        lines.append([str(number), *(cell for rows in sides for cell in _cells(model, rows.get(number)))])
    return head + aligned(lines)


def _cells(model: ProbedModel, row: ProbeRow | None) -> list[str]:
    if row is None:
        return ["-", "-", "-"]
    change = model.change(row)
    return [
        f"{row.score:.2f}",
        "-" if change is None else f"{change:+.2f}",
        "-" if row.unexplained is None else f"{100 * row.unexplained:.2f}",
    ]
