"""Gates and state norms of the cells of a depth-wise LSTM over a data set.

Source of gates and states: "Rewiring the Transformer with Depth-Wise LSTMs", Equations 2-4, 7 and 8. Statistics are
over real positions, ends of sentences included, and are summed over batches in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from fairseq_depthwise.analysis.stacks.batches import StackBatch
from fairseq_depthwise.models.depthwise_lstm.cell import DepthwiseLSTMCell, DepthwiseState, GateValues

#: Below the first a gate is nearly shut, above the second nearly open.
SHUT, OPEN = 0.1, 0.9


@dataclass(frozen=True)
class MeanDeviation:
    """Mean and population standard deviation (squares are divided by n)."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class GateDistribution(MeanDeviation):
    """The values of a gate over positions and features."""

    shut: float
    open: float


@dataclass(frozen=True)
class CellStatistics:
    """The statistics of one cell.

    Attributes:
        layer: number of its layer, from 1.
        cell: None where the layer has one; "a" and "b" where it has two (``--decoder-merge two-cells``): the cell
            between self- and cross-attention, and the one above both.
        input_gate, forget_gate, output_gate: over positions and features.
        cell_norm: L2 norm of the cell state, over positions.
        output_norm: the same of the output.
    """

    layer: int
    cell: str | None
    input_gate: GateDistribution
    forget_gate: GateDistribution
    output_gate: GateDistribution
    cell_norm: MeanDeviation
    output_norm: MeanDeviation


class RunningMoments:
    """Mean and standard deviation of values that come in parts.

    Squared differences from the mean are combined as by Chan, Golub and LeVeque ("Updating Formulae and a Pairwise
    Algorithm for Computing Sample Variances", 1979), which is exact for small deviations from a large mean.
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
    """The statistics of one cell, summed over batches."""

    def __init__(self, layer: int, cell: str | None = None) -> None:
        self.layer = layer
        self.cell = cell
        self._gates = [RunningMoments() for _ in range(3)]
        self._beyond = [[0, 0] for _ in range(3)]
        self._norms = [RunningMoments() for _ in range(2)]

    def add(self, gates: GateValues, state: DepthwiseState, padding: Tensor) -> None:
        """Add a step: its gates and its new state, T x B x d each. ``padding``: B x T, True at padding."""
        real = padding.logical_not().t()
        for moments, beyond, gate in zip(self._gates, self._beyond, gates, strict=True):
            values = gate[real]
            moments.add(values)
            beyond[0] += int((values < SHUT).sum())
            beyond[1] += int((values > OPEN).sum())
        for moments, vectors in zip(self._norms, (state.cell, state.output), strict=True):
            moments.add(vectors[real].double().norm(dim=-1))

    def value(self) -> CellStatistics:
        """Return the statistics of all steps."""
        gates = [
            GateDistribution(moments.mean, moments.deviation, *(count / moments.count for count in beyond))
            for moments, beyond in zip(self._gates, self._beyond, strict=True)
        ]
        norms = [MeanDeviation(moments.mean, moments.deviation) for moments in self._norms]
        return CellStatistics(self.layer, self.cell, *gates, *norms)


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
    """Run batches and return the statistics of each side's cells, whatever the size of the batches.

    Args:
        model: the ``depthwise_lstm_transformer`` that the batches are for, with gates, in evaluation mode.
        sides: of the batches.
        batches: to run.
    """
    sums: dict[str, list[CellSums]] = {side: [] for side in sides}
    padding: dict[str, Tensor] = {}
    hooks: list[Any] = []

    def observe(side: str, cell: DepthwiseLSTMCell, into: CellSums) -> None:
        def hook(_: nn.Module, inputs: tuple[Tensor, DepthwiseState], state: DepthwiseState) -> None:
            # The gates are computed once more: fused kernels do not return them.
            into.add(cell.gate_values(*inputs), state, padding[side])

        hooks.append(cell.register_forward_hook(hook))

    try:
        for side, of_side in sums.items():
            for layer, place, cell in cells_of(getattr(model, side).layers):
                of_side.append(CellSums(layer, place))
                observe(side, cell, of_side[-1])
        for batch in batches:
            padding = batch.padding
            batch.run()
    finally:
        for handle in hooks:
            handle.remove()
    return {side: tuple(cell.value() for cell in of_side) for side, of_side in sums.items()}
