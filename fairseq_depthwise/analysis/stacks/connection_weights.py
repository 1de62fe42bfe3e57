"""How much each layer reads of the layers below it, by the weights of its connection over depth.

Weights that are chosen by content are averaged over real positions, ends of sentences included, in float64. What they
weigh differs: outputs of layers (``average``), of blocks after a layer norm (``blocks``), what layers or blocks add
(``attention``, ``hyper``), or values (``value-residual``). docs/connections.md has the equations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor, nn

from fairseq_depthwise.analysis.stacks.batches import StackBatch
from fairseq_depthwise.analysis.stacks.gate_statistics import MeanDeviation, RunningMoments
from fairseq_depthwise.modules.connections.shape import ShapedConnection


@dataclass(frozen=True)
class SourceWeight:
    """The weight of one source in what one layer reads.

    Attributes:
        layer: number of the layer that reads, from 1; with L layers L + 1 is what the stack's output is made of.
        source: what is read, as "embedding" or "layer 1".
        weight: over positions.
    """

    layer: int
    source: str
    weight: MeanDeviation


def has_weights(stack: Any) -> bool:
    """Return whether the connection of an encoder or a decoder has weights, for some number of layers."""
    connection = getattr(stack, "connection", None)
    overridden = type(connection).source_weights if isinstance(connection, ShapedConnection) else None
    return overridden is not None and overridden is not ShapedConnection.source_weights


def measure_weights(model: Any, sides: Iterable[str], batches: Iterable[StackBatch]) -> dict[str, list[SourceWeight]]:
    """Run batches and return the weights of each side, by layer and source, whatever the size of the batches.

    Args:
        model: the ``sdt_transformer`` that the batches are for, in evaluation mode.
        sides: of the batches; nothing is returned for one whose connection has no weights.
        batches: to run.
    """
    moments: dict[str, dict[tuple[int, str], RunningMoments]] = {side: {} for side in sides}
    padding: dict[str, Tensor] = {}

    def add(side: str, layer: int, weights: dict[str, Tensor]) -> None:
        real = padding[side].logical_not().t()
        for source, weight in weights.items():
            moments[side].setdefault((layer, source), RunningMoments()).add(weight.expand_as(real)[real])

    with ExitStack() as watching:
        for side in moments:
            if has_weights(stack := getattr(model, side, None)):
                watching.enter_context(_watched(stack, partial(add, side)))
        for batch in batches:
            padding = batch.padding
            batch.run()
    return {
        side: [
            SourceWeight(layer, source, MeanDeviation(found.mean, found.deviation))
            for (layer, source), found in of_side.items()
        ]
        for side, of_side in moments.items()
    }


@contextmanager
def _watched(stack: Any, see: Callable[[int, dict[str, Tensor]], None]) -> Iterator[None]:
    """Show ``see`` the weights of each reader while a stack runs: its number, from 1, and what it reads."""
    connection = stack.connection
    stack.connection = _WatchedConnection(connection, see)
    try:
        yield
    finally:
        stack.connection = connection


class _WatchedConnection(nn.Module):
    """Stands where a connection stood, and shows its weights."""

    def __init__(self, connection: ShapedConnection, see: Callable[[int, dict[str, Tensor]], None]) -> None:
        super().__init__()
        self.connection = connection
        self.see = see
        self.states: list[Any] = []

    def initial_state(self, embedded: Tensor) -> Any:
        self.states = []
        return self.connection.initial_state(embedded)

    def layer_input(self, state: Any, index: int) -> Any:
        self._reads(state)
        return self.connection.layer_input(state, index)

    def update(self, state: Any, index: int, output: Any) -> Any:
        return self.connection.update(state, index, output)

    def representation(self, state: Any) -> Tensor:
        return self.connection.representation(state)

    def output(self, state: Any) -> Tensor:
        self._reads(state)
        return self.connection.output(state)

    def _reads(self, state: Any) -> None:
        self.states.append(state)
        self.see(len(self.states), self.connection.source_weights(self.states))
