"""How much each layer reads of the layers below it, by the weights of its connection over depth.

Weights that are chosen by content are averaged over real positions, ends of sentences included, in float64. What they
weigh differs: outputs of layers (``average``), of blocks after a layer norm (``blocks``), what layers or blocks add
(``attention``, ``hyper``), or values (``value-residual``). docs/connections.md has the equations.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from fairseq_depthwise.analysis.analysis import MeanDeviation, RunningMoments, StackBatch, StackReport
from fairseq_depthwise.analysis.connection_sources import Trace, changed_readers, has_sources, sources_of, without


@dataclass(frozen=True)
class SourceWeight:
    """The weight of one source ("embedding", "layer 1") in what one layer reads, over positions.

    With L layers, layer L + 1 is what the stack's output is made of. Sub-layers are "1a", "1b". ``cost``: by how many
    bits a token the loss of the reference rises if the layer does not read this source; None where not measured.
    """

    layer: int | str
    source: str
    weight: MeanDeviation
    cost: float | None = None


def has_weights(stack: Any) -> bool:
    """Return whether the connection of an encoder or a decoder has weights, for some number of layers."""
    return has_sources(getattr(stack, "connection", None))


def measure_weights(
    model: Any, sides: Iterable[str], batches: Iterable[StackBatch], *, ablate: bool = False
) -> dict[str, list[SourceWeight]]:
    """Run batches and return the weights of each side, by layer and source, whatever the size of the batches.

    Nothing is returned for a side whose connection has no weights. With ``ablate`` every batch runs once more for each
    layer and source, and the weights have costs.
    """
    moments: dict[str, dict[tuple[int | str, str], RunningMoments]] = {side: {} for side in sides}
    padding: dict[str, Tensor] = {}
    rises: dict[tuple[str, int | str, str], float] = defaultdict(float)
    tokens = 0

    connections = {side: getattr(model, side).connection for side in moments}

    def add(side: str, layer: int | str, trace: Trace, layer_input: Any) -> Any:
        real = padding[side].logical_not().t()
        for name, source in sources_of(connections[side], trace).items():
            moments[side].setdefault((layer, name), RunningMoments()).add(source.weight.expand_as(real)[real])
        return layer_input

    for batch in batches:
        padding = batch.padding
        with ExitStack() as watching:
            for side in moments:
                if has_weights(stack := getattr(model, side)):
                    watching.enter_context(changed_readers(stack, partial(add, side)))
            batch.run()
        if ablate:
            whole, count = batch.loss()
            tokens += count
            for side, of_side in moments.items():
                for layer, source in of_side:
                    with without_source(getattr(model, side), layer, source):
                        rises[side, layer, source] += batch.loss()[0] - whole
    return {
        side: [
            SourceWeight(layer, source, found.value(), rises[side, layer, source] / tokens if ablate else None)
            for (layer, source), found in of_side.items()
        ]
        for side, of_side in moments.items()
    }


def without_source(stack: Any, layer: int | str, source: str) -> AbstractContextManager[None]:
    """Leave a source out of what one reader reads, with the numbers and names of :class:`SourceWeight`."""
    connection = stack.connection

    def change(place: int | str, trace: Trace, layer_input: Any) -> Any:
        if place != layer:
            return layer_input
        return without(layer_input, sources_of(connection, trace)[source])

    return changed_readers(stack, change)


def as_text(report: StackReport) -> str:
    """Return a table for each side: a line for each layer that reads, a column for each source."""

    def of_side(rows: Sequence[SourceWeight]) -> list[list[str]]:
        if not rows:
            return [["each layer reads what the one below passes on"]]
        readers, sources, _ = _matrix(rows)
        cells = {
            (row.layer, row.source): f"{row.weight.mean:.3f}" + ("" if row.cost is None else f" ({row.cost:+.3f})")
            for row in rows
        }
        lines = [[str(layer), *(cells.get((layer, source), "") for source in sources)] for layer in readers]
        return [["layer", *sources], *lines]

    legend = "mean weight of each source in what a layer reads; above the last layer comes the stack's output\n"
    if any(row.cost is not None for rows in report.rows.values() for row in rows):
        legend += "in brackets: by how many bits a token the loss rises without it, all other weights as they are\n"
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
        axes.set(title=side, ylabel="layer that reads")
        axes.set_yticks(range(len(readers)), readers)
        axes.set_xticks(range(len(sources)), sources, rotation=90)
    band.colorbar(image, ax=list(panels), label="share of the weights")
