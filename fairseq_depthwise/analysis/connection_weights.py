"""How strongly each layer weighs the outputs below it, in models with connections across layers.

For example, layer 3 may read ``0.2 * embedding + 0.5 * layer 1 + 0.3 * layer 2``. Input-dependent weights are averaged
in float64 over non-padding positions, including end-of-sentence. What is weighted depends on the connection: outputs of
layers (``average``), outputs of blocks after a layer norm (``blocks``), what layers or blocks add (``attention``,
``hyper``), or values (``value-residual``). docs/connections.md has the equations.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fairseq_depthwise.analysis.analysis import LayerRow, MeanAndDeviation, RunningMoments, StackBatch, StackReport
from fairseq_depthwise.analysis.connection_sources import (
    Trace,
    change_readers,
    find_sources,
    has_sources,
    subtract_source,
)
from fairseq_depthwise.figures import make_colormap

if TYPE_CHECKING:
    from matplotlib.figure import SubFigure

#: (layer, name of a source) -> moments of its weight over positions.
Moments = dict[tuple[int | str, str], RunningMoments]


@dataclass(frozen=True)
class SourceWeight(LayerRow):
    """The weight of one source in the input of one layer, over positions.

    Attributes:
        layer: number of the layer that reads, from 1, or name of the sub-layer, such as "1a"; "output" for the output
            of the stack, which also reads from below.
        source: "embedding", "layer 1", ...
        weight: its mean and standard deviation.
        cost: increase of the loss in bits per token when this source is removed from what the layer reads; None if not
            measured.
    """

    source: str
    weight: MeanAndDeviation
    cost: float | None = None


def has_weights(stack: Any) -> bool:
    """Return whether the connection of an encoder or a decoder has weights (perhaps only in deeper stacks)."""
    return has_sources(getattr(stack, "connection", None))


def measure_weights(
    model: Any, sides: Iterable[str], batches: Iterable[StackBatch], *, ablate: bool = False
) -> dict[str, list[SourceWeight]]:
    """Run batches and return the weights of each side, by layer and source; batch sizes make no difference.

    A side whose connection has no weights has no rows. With ``ablate`` every batch runs once more for each layer and
    source, and the weights have costs.
    """
    moments: dict[str, Moments] = {side: {} for side in sides}
    costs: dict[tuple[str, int | str, str], float] = defaultdict(float)
    tokens = 0
    for batch in batches:
        _add_weights(model, batch, moments)
        if not ablate:
            continue
        # The loss with all sources, then without one source of one layer at a time.
        full_loss, token_count = batch.loss()
        tokens += token_count
        for side, side_moments in moments.items():
            stack = getattr(model, side)
            for layer, source_name in side_moments:
                with ablate_source(stack, layer, source_name):
                    ablated_loss, _ = batch.loss()
                costs[side, layer, source_name] += ablated_loss - full_loss

    rows: dict[str, list[SourceWeight]] = {}
    for side, side_moments in moments.items():
        rows[side] = []
        for (layer, source_name), weight_moments in side_moments.items():
            cost = costs[side, layer, source_name] / tokens if ablate else None
            rows[side].append(SourceWeight(layer, source_name, weight_moments.compute(), cost))
    return rows


def _add_weights(model: Any, batch: StackBatch, moments: Mapping[str, Moments]) -> None:
    """Run a batch and add the weights of each side's connection to ``moments``."""
    # change_readers replaces stack.connection, so keep the originals.
    connections = {side: getattr(model, side).connection for side in moments}

    def record(side: str, reader: int | str, trace: Trace, layer_input: Any) -> Any:
        """Observe only: return the layer's input unchanged."""
        is_token = batch.padding[side].logical_not().t()  # T x B
        for source_name, source in find_sources(connections[side], trace).items():
            weight_moments = moments[side].setdefault((reader, source_name), RunningMoments())
            # Weights that do not depend on the input are scalars.
            weight_moments.add(source.weight.expand_as(is_token)[is_token])
        return layer_input

    with ExitStack() as watchers:
        for side in moments:
            stack = getattr(model, side)
            if has_weights(stack):
                watchers.enter_context(change_readers(stack, partial(record, side)))
        batch.run()


def ablate_source(stack: Any, ablated_reader: int | str, source_name: str) -> AbstractContextManager[None]:
    """Within the context, remove a source from the input of one reader, both named as in :class:`SourceWeight`."""
    connection = stack.connection

    def change(reader: int | str, trace: Trace, layer_input: Any) -> Any:
        if reader != ablated_reader:
            return layer_input
        sources = find_sources(connection, trace)
        return subtract_source(layer_input, sources[source_name])

    return change_readers(stack, change)


def format_report(report: StackReport) -> str:
    """Return a table for each side: a line for each layer that reads, a column for each source."""
    legend = "mean weight of each source in what a layer reads; output: in what the stack returns\n"
    costs = [row.cost for row in _collect_weights(report)]
    if any(cost is not None for cost in costs):
        legend += "in brackets: by how many bits a token the loss rises without it, all other weights as they are\n"
    return report.format_tables(legend, _format_rows)


def _collect_weights(report: StackReport) -> list[SourceWeight]:
    """Return the rows of all sides."""
    weights: list[Any] = []
    for rows in report.rows.values():
        weights += rows
    return weights


def _format_rows(rows: Sequence[SourceWeight]) -> list[list[str]]:
    if not rows:
        return [["each layer reads what the one below passes on"]]
    # A layer does not read all sources: the other cells stay empty.
    cells = {}
    for row in rows:
        cost = "" if row.cost is None else f" ({row.cost:+.3f})"
        cells[row.layer, row.source] = f"{row.weight.mean:.3f}{cost}"
    readers, source_names = _list_readers_and_sources(rows)
    lines = [["layer", *source_names]]
    for reader in readers:
        lines.append([str(reader), *(cells.get((reader, source_name), "") for source_name in source_names)])
    return lines


def _list_readers_and_sources(rows: Sequence[SourceWeight]) -> tuple[list[int | str], list[str]]:
    """Return the layers that read and the names of their sources, each once and in order."""
    readers = list(dict.fromkeys(row.layer for row in rows))
    source_names = list(dict.fromkeys(row.source for row in rows))
    return readers, source_names


def compute_figure_size(report: StackReport) -> tuple[float, float]:
    """Return width and height that :func:`draw_weights` needs, in inches."""
    sizes = []
    for rows in report.rows.values():
        if rows:
            readers, source_names = _list_readers_and_sources(rows)
            sizes.append((len(readers), len(source_names)))
    most_readers = max(readers for readers, _ in sizes)
    most_sources = max(sources for _, sources in sizes)
    # Margins, plus 0.3 per column of the widest panel and 0.25 per row of the tallest.
    width = 2.0 + len(sizes) * (1.2 + 0.3 * most_sources)
    height = 2.4 + 0.25 * most_readers
    return width, height


def draw_weights(figure: SubFigure, report: StackReport) -> None:
    """Draw a heat map of sources and readers for each side that has weights.

    Each row is divided by the sum of its absolute weights, because their scale differs between connections.
    """
    rows_by_side = {side: rows for side, rows in report.rows.items() if rows}
    shares = {side: _normalize_weights(rows) for side, rows in rows_by_side.items()}
    # Negative weights, which some connections learn, have colors of their own.
    lowest = -1 if any(np.nanmin(of_side) < 0 for of_side in shares.values()) else 0
    panels = figure.subplots(1, len(rows_by_side), squeeze=False)[0]
    for axes, (side, rows) in zip(panels, rows_by_side.items(), strict=True):
        readers, source_names = _list_readers_and_sources(rows)
        image = axes.imshow(
            shares[side], vmin=lowest, vmax=1, cmap=make_colormap(lowest), aspect="auto", interpolation="none"
        )
        axes.set(title=side, xlabel="source", ylabel="layer that reads")
        axes.set_yticks(range(len(readers)), readers)
        axes.set_xticks(range(len(source_names)), source_names, rotation=90)
    figure.colorbar(image, ax=list(panels), label="share of the weights")  # all panels have the same scale


def _normalize_weights(rows: Sequence[SourceWeight]) -> np.ndarray:
    """Return the weights of each layer divided by their absolute sum, layers x sources; NaN for sources not read."""
    readers, source_names = _list_readers_and_sources(rows)
    weights = np.full((len(readers), len(source_names)), math.nan)
    for row in rows:
        weights[readers.index(row.layer), source_names.index(row.source)] = row.weight.mean
    sums = np.nansum(np.abs(weights), axis=1, keepdims=True)
    # If the weights of a layer are all 0, they stay 0.
    normalized: np.ndarray = weights / np.where(sums, sums, 1)
    return normalized
