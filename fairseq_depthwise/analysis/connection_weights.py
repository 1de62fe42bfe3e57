"""How much each layer reads of the layers below it, by the weights of its connection over depth.

Weights that are chosen by content are averaged over real positions, ends of sentences included, in float64. What they
weigh differs: outputs of layers (``average``), of blocks after a layer norm (``blocks``), what layers or blocks add
(``attention``, ``hyper``), or values (``value-residual``). docs/connections.md has the equations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from fairseq_depthwise.analysis.analysis import MeanDeviation, RunningMoments, StackBatch, StackReport
from fairseq_depthwise.modules.connections.sources import source_names
from fairseq_depthwise.modules.stack import Connection


@dataclass(frozen=True)
class SourceWeight:
    """The weight of one source ("embedding", "layer 1") in what one layer reads, over positions.

    With L layers, layer L + 1 is what the stack's output is made of. Sub-layers are "1a", "1b".
    """

    layer: int | str
    source: str
    weight: MeanDeviation


def has_weights(stack: Any) -> bool:
    """Return whether the connection of an encoder or a decoder has weights, for some number of layers."""
    connection = getattr(stack, "connection", None)
    return isinstance(connection, Connection) and type(connection).source_weights is not Connection.source_weights


def measure_weights(model: Any, sides: Iterable[str], batches: Iterable[StackBatch]) -> dict[str, list[SourceWeight]]:
    """Run batches and return the weights of each side, by layer and source, whatever the size of the batches.

    Nothing is returned for a side whose connection has no weights.
    """
    moments: dict[str, dict[tuple[int | str, str], RunningMoments]] = {side: {} for side in sides}
    padding: dict[str, Tensor] = {}

    def add(side: str, layer: int | str, weights: dict[str, Tensor]) -> None:
        real = padding[side].logical_not().t()
        for source, weight in weights.items():
            moments[side].setdefault((layer, source), RunningMoments()).add(weight.expand_as(real)[real])

    with ExitStack() as watching:
        for side in moments:
            stack = getattr(model, side)
            if has_weights(stack):
                watching.enter_context(_watched(stack.connection, partial(add, side)))
        for batch in batches:
            padding = batch.padding
            batch.run()
    return {
        side: [SourceWeight(layer, source, found.value()) for (layer, source), found in of_side.items()]
        for side, of_side in moments.items()
    }


@contextmanager
def _watched(connection: Connection, see: Callable[[int | str, dict[str, Tensor]], None]) -> Iterator[None]:
    """Show ``see`` the weights of each reader while a stack runs: its number, from 1, or place, and what it reads."""
    states: list[Any] = []
    start, units = connection.initial_state, connection.units

    def begin(embedded: Tensor) -> Any:
        states.clear()
        return start(embedded)

    def reading(method: Callable[..., Any]) -> Callable[..., Any]:
        def read(state: Any, *rest: Any) -> Any:
            states.append(state)
            place = source_names(len(states) + 1, "", units)[-1].strip()
            see(int(place) if units == 1 else place, connection.source_weights(states))
            return method(state, *rest)

        return read

    read = {"layer_input": reading(connection.layer_input), "output": reading(connection.output)}
    vars(connection).update(initial_state=begin, **read)
    try:
        yield
    finally:
        for name in ("initial_state", *read):
            del vars(connection)[name]


def as_text(report: StackReport) -> str:
    """Return a table for each side: a line for each layer that reads, a column for each source."""

    def of_side(rows: Sequence[SourceWeight]) -> list[list[str]]:
        if not rows:
            return [["each layer reads what the one below passes on"]]
        readers, sources, weights = _matrix(rows)
        cells = [["" if math.isnan(weight) else f"{weight:.3f}" for weight in of_reader] for of_reader in weights]
        return [["layer", *sources], *([str(layer), *line] for layer, line in zip(readers, cells, strict=True))]

    legend = "mean weight of each source in what a layer reads; above the last layer comes the stack's output\n"
    return report.table(legend, of_side)


def _matrix(rows: Sequence[SourceWeight]) -> tuple[list[int | str], list[str], np.ndarray]:
    """Return layers that read and sources, and mean weights, layers x sources; NaN where a layer does not read."""
    readers = list(dict.fromkeys(row.layer for row in rows))
    sources = list(dict.fromkeys(row.source for row in rows))
    weights = np.full((len(readers), len(sources)), math.nan)
    for row in rows:
        weights[readers.index(row.layer), sources.index(row.source)] = row.weight.mean
    return readers, sources, weights


def figure_size(report: StackReport) -> tuple[float, float]:
    """Return width and height that :func:`draw_weights` needs."""
    matrices = [_matrix(rows) for rows in report.rows.values() if rows]
    sources, readers = (max(len(matrix[axis]) for matrix in matrices) for axis in (1, 0))
    return 2.0 + len(matrices) * (1.2 + 0.3 * sources), 2.4 + 0.25 * readers


def draw_weights(band: Any, report: StackReport) -> None:
    """Draw a heat map of sources and readers for each side that has weights.

    Shown are shares of the sum of absolute weights that a layer reads with, as sizes differ between connections.
    """
    shown = {side: _matrix(rows) for side, rows in report.rows.items() if rows}
    panels = band.subplots(1, len(shown), squeeze=False)[0]
    for axes, (side, (readers, sources, weights)) in zip(panels, shown.items(), strict=True):
        whole = np.nansum(np.abs(weights), axis=1, keepdims=True)
        image = axes.imshow(weights / np.where(whole, whole, 1), vmin=-1, vmax=1, cmap="RdBu", aspect="auto")
        axes.set_title(side)
        axes.set_ylabel("layer that reads")
        axes.set_yticks(range(len(readers)), readers)
        axes.set_xticks(range(len(sources)), sources, rotation=90)
    band.colorbar(image, ax=list(panels), label="share of the weights")
