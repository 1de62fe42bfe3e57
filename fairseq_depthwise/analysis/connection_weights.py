"""The weights with which each layer reads the layers below it, for connections over depth.

Weights that are chosen by content are averaged over real positions, ends of sentences included, in float64. What they
weigh differs: outputs of layers (``average``), of blocks after a layer norm (``blocks``), what layers or blocks add
(``attention``, ``hyper``), or values (``value-residual``). docs/connections.md has the equations.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fairseq_depthwise.analysis.analysis import LayerRow, MeanDeviation, RunningMoments, StackBatch, StackReport
from fairseq_depthwise.analysis.connection_sources import Trace, changed_readers, has_sources, sources_of, without

#: Of each layer and source, the weight over positions.
Moments = dict[tuple[int | str, str], RunningMoments]


@dataclass(frozen=True)
class SourceWeight(LayerRow):
    """The weight of one source ("embedding", "layer 1") in what one layer reads, over positions.

    With L layers, layer L + 1 is what the stack's output is made of. Sub-layers are "1a", "1b". ``cost``: by how many
    bits a token the loss of the reference rises if the layer does not read this source; None where not measured.
    """

    source: str
    weight: MeanDeviation
    cost: float | None = None


def has_weights(stack: Any) -> bool:
    """Return whether the connection of an encoder or a decoder has weights, for some number of layers."""
    return has_sources(getattr(stack, "connection", None))


def measure_weights(
    model: Any, sides: Iterable[str], batches: Iterable[StackBatch], *, ablate: bool = False
) -> dict[str, list[SourceWeight]]:
    """Run batches and return the weights of each side, by layer and source; batch sizes make no difference.

    Nothing is returned for a side whose connection has no weights. With ``ablate`` every batch runs once more for each
    layer and source, and the weights have costs.
    """
    moments: dict[str, Moments] = {side: {} for side in sides}
    costs: dict[tuple[str, int | str, str], float] = defaultdict(float)
    tokens = 0
    for batch in batches:
        _add_weights(model, batch, moments)
        if not ablate:
            continue
        # The loss with all sources, then without one source of one layer at a time.
        whole, count = batch.loss()
        tokens += count
        for side, moments_of_side in moments.items():
            for layer, source in moments_of_side:
                with without_source(getattr(model, side), layer, source):
                    costs[side, layer, source] += batch.loss()[0] - whole

    rows: dict[str, list[SourceWeight]] = {}
    for side, moments_of_side in moments.items():
        rows[side] = []
        for (layer, source), weight in moments_of_side.items():
            cost = costs[side, layer, source] / tokens if ablate else None
            rows[side].append(SourceWeight(layer, source, weight.value(), cost))
    return rows


def _add_weights(model: Any, batch: StackBatch, moments: Mapping[str, Moments]) -> None:
    """Run a batch and add the weights of each side's connection."""
    # While a stack is observed, another module stands in the connection's place.
    connections = {side: getattr(model, side).connection for side in moments}

    def add(side: str, layer: int | str, trace: Trace, layer_input: Any) -> Any:
        real = batch.padding[side].logical_not().t()  # T x B
        for name, source in sources_of(connections[side], trace).items():
            moments_of_source = moments[side].setdefault((layer, name), RunningMoments())
            # Weights that are not chosen by content are scalars.
            moments_of_source.add(source.weight.expand_as(real)[real])
        return layer_input

    with ExitStack() as observed:
        for side in moments:
            stack = getattr(model, side)
            if has_weights(stack):
                observed.enter_context(changed_readers(stack, partial(add, side)))
        batch.run()


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
    legend = "mean weight of each source in what a layer reads; above the last layer comes the stack's output\n"
    costs = [row.cost for row in _weights_in(report)]
    if any(cost is not None for cost in costs):
        legend += "in brackets: by how many bits a token the loss rises without it, all other weights as they are\n"
    return report.table(legend, _lines_of)


def _weights_in(report: StackReport) -> list[SourceWeight]:
    weights: list[Any] = []
    for rows in report.rows.values():
        weights += rows
    return weights


def _lines_of(rows: Sequence[SourceWeight]) -> list[list[str]]:
    if not rows:
        return [["each layer reads what the one below passes on"]]
    # A layer does not read all sources: such cells stay empty.
    cells = {}
    for row in rows:
        cost = "" if row.cost is None else f" ({row.cost:+.3f})"
        cells[row.layer, row.source] = f"{row.weight.mean:.3f}{cost}"
    readers, sources = _readers_and_sources(rows)
    lines = [["layer", *sources]]
    for layer in readers:
        lines.append([str(layer), *(cells.get((layer, source), "") for source in sources)])
    return lines


def _readers_and_sources(rows: Sequence[SourceWeight]) -> tuple[list[int | str], list[str]]:
    """Return the layers that read, and what they read, each once and in order."""
    readers = list(dict.fromkeys(row.layer for row in rows))
    sources = list(dict.fromkeys(row.source for row in rows))
    return readers, sources


def figure_size(report: StackReport) -> tuple[float, float]:
    """Return width and height that :func:`draw_weights` needs."""
    sizes = []
    for rows in report.rows.values():
        if rows:
            readers, sources = _readers_and_sources(rows)
            sizes.append((len(readers), len(sources)))
    most_readers = max(readers for readers, _ in sizes)
    most_sources = max(sources for _, sources in sizes)
    return 2.0 + len(sizes) * (1.2 + 0.3 * most_sources), 2.4 + 0.25 * most_readers


def draw_weights(band: Any, report: StackReport) -> None:
    """Draw a heat map of sources and readers for each side that has weights.

    Shown are shares of the sum of absolute weights that a layer reads with, as sizes differ between connections.
    """
    weighted = {side: rows for side, rows in report.rows.items() if rows}
    panels = band.subplots(1, len(weighted), squeeze=False)[0]
    for axes, (side, rows) in zip(panels, weighted.items(), strict=True):
        readers, sources = _readers_and_sources(rows)
        image = axes.imshow(_shares(rows), vmin=-1, vmax=1, cmap="RdBu", aspect="auto")
        axes.set(title=side, ylabel="layer that reads")
        axes.set_yticks(range(len(readers)), readers)
        axes.set_xticks(range(len(sources)), sources, rotation=90)
    band.colorbar(image, ax=list(panels), label="share of the weights")


def _shares(rows: Sequence[SourceWeight]) -> np.ndarray:
    """Return the share of each source in what each layer reads, layers x sources; NaN where a layer does not read."""
    readers, sources = _readers_and_sources(rows)
    weights = np.full((len(readers), len(sources)), math.nan)
    for row in rows:
        weights[readers.index(row.layer), sources.index(row.source)] = row.weight.mean
    sums = np.nansum(np.abs(weights), axis=1, keepdims=True)
    # A layer whose weights are all 0 has shares of 0.
    shares: np.ndarray = weights / np.where(sums, sums, 1)
    return shares
