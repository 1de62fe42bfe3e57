"""What the cells of a depth-wise LSTM do with data: how far their gates are open, and how long their states are.

Source of gates and states: "Rewiring the Transformer with Depth-Wise LSTMs", Equations 2-4, 7 and 8. Everything is over
real positions, the ends of sentences among them, and summed over batches in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from fairseq_depthwise.analysis.stacks.batches import StackBatch
from fairseq_depthwise.models.depthwise_lstm.cell import DepthwiseLSTMCell, DepthwiseState, GateValues

#: A gate below the first, or above the second, is nearly shut, or nearly open.
SHUT, OPEN = 0.1, 0.9


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation of all values (not of a sample: the squares are divided by their number)."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class GateSpread(Spread):
    """A gate over positions and features.

    Attributes:
        shut: share of the values below 0.1.
        open: share of the values above 0.9.
    """

    shut: float
    open: float


@dataclass(frozen=True)
class CellStatistics:
    """What one cell did.

    Attributes:
        layer: the number of its layer, from 1.
        cell: None where the layer has one; "a" and "b" where it has two (``--decoder-merge two-cells``): the cell
            between self- and cross-attention, and the one above both.
        input_gate, forget_gate, output_gate: over positions and features.
        cell_norm: L2 norm of the cell state, over positions.
        output_norm: the same of the output.
    """

    layer: int
    cell: str | None
    input_gate: GateSpread
    forget_gate: GateSpread
    output_gate: GateSpread
    cell_norm: Spread
    output_norm: Spread


class Moments:
    """Mean and standard deviation of values that come in parts.

    The squares are those of differences from the mean, and parts are joined as Chan, Golub and LeVeque do ("Updating
    Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979): the difference of two large sums would
    lose a small deviation.
    """

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self._squares = 0.0

    def add(self, values: Tensor) -> None:
        """Add values of any shape."""
        if not values.numel():
            return
        values = values.double()
        mean = float(values.mean())
        count = self.count + values.numel()
        distance = mean - self.mean
        self._squares += float((values - mean).square().sum())
        self._squares += distance**2 * self.count * values.numel() / count
        self.mean += distance * values.numel() / count
        self.count = count

    @property
    def deviation(self) -> float:
        """Standard deviation; NaN before the first value."""
        return math.sqrt(self._squares / self.count) if self.count else math.nan


class CellSums:
    """The statistics of one cell.

    Args:
        layer, cell: as in :class:`CellStatistics`.
    """

    def __init__(self, layer: int, cell: str | None = None) -> None:
        self.layer = layer
        self.cell = cell
        self._gates = [Moments() for _ in range(3)]
        self._beyond = [[0, 0] for _ in range(3)]
        self._norms = [Moments() for _ in range(2)]

    def add(self, gates: GateValues, state: DepthwiseState, padding: Tensor) -> None:
        """Add a step: its gates and the state above it, T x B x d each. ``padding``: B x T, True at padding."""
        real = padding.logical_not().t()
        for moments, beyond, gate in zip(self._gates, self._beyond, gates, strict=True):
            values = gate[real]
            moments.add(values)
            beyond[0] += int((values < SHUT).sum())
            beyond[1] += int((values > OPEN).sum())
        for moments, vectors in zip(self._norms, (state.cell, state.output), strict=True):
            moments.add(vectors[real].double().norm(dim=-1))

    def value(self) -> CellStatistics:
        """All of it."""
        gates = [
            GateSpread(moments.mean, moments.deviation, *(count / moments.count for count in beyond))
            for moments, beyond in zip(self._gates, self._beyond, strict=True)
        ]
        norms = [Spread(moments.mean, moments.deviation) for moments in self._norms]
        return CellStatistics(self.layer, self.cell, *gates, *norms)


def cells_of(layers: Iterable[Any]) -> Iterator[tuple[int, str | None, Any]]:
    """Number of the layer, place in it and cell of each cell of a stack, in the order in which they run."""
    for number, layer in enumerate(layers, start=1):
        middle = getattr(layer, "middle_cell", None)
        if middle is not None:
            yield number, "a", middle
        yield number, None if middle is None else "b", layer.cell


def measure_gates(
    model: Any, sides: Iterable[str], batches: Iterable[StackBatch]
) -> dict[str, tuple[CellStatistics, ...]]:
    """Run batches and measure the cells of each side's stack; the size of the batches does not matter.

    Args:
        model: the ``depthwise_lstm_transformer`` that the batches are for, with gates, in evaluation mode.
        sides: of the batches.
        batches: to run.
    """
    sums: dict[str, list[CellSums]] = {side: [] for side in sides}
    padding: dict[str, Tensor] = {}
    hooks: list[Any] = []

    def look_on(side: str, cell: DepthwiseLSTMCell, into: CellSums) -> None:
        def hook(_: nn.Module, inputs: tuple[Tensor, DepthwiseState], above: DepthwiseState) -> None:
            # The gates are computed once more: the fused ways through the cell do not show them.
            into.add(cell.gate_values(*inputs), above, padding[side])

        hooks.append(cell.register_forward_hook(hook))

    try:
        for side, of_side in sums.items():
            for layer, place, cell in cells_of(getattr(model, side).layers):
                of_side.append(CellSums(layer, place))
                look_on(side, cell, of_side[-1])
        for batch in batches:
            padding = batch.padding
            batch.run()
    finally:
        for one in hooks:
            one.remove()
    return {side: tuple(one.value() for one in of_side) for side, of_side in sums.items()}
