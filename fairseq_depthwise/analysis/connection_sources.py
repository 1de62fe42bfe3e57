"""What the readers of a connection read: from which sources, with which weights; watched and changed as a stack runs.

The readers of a stack are its layers, and last what is above them: the stack's output before the last layer norm. Each
reads a weighted sum of sources, such as the outputs of the layers below. A new connection is measured by a function
here, which returns the sources of a reader, and a line in ``SOURCES``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fairseq_depthwise.models.sdt.block_connection import BlockConnection, BlockState
from fairseq_depthwise.modules.depth_connections.attention_residual import (
    AttentionConnection,
    source_scores,
    source_shares,
)
from fairseq_depthwise.modules.depth_connections.average import AverageConnection
from fairseq_depthwise.modules.depth_connections.hyper import HyperConnection
from fairseq_depthwise.modules.depth_connections.value_residual import ValueResidualConnection, ValueStream
from fairseq_depthwise.modules.stack import Connection, Stack, stream_of, with_stream


class Source(NamedTuple):
    """One term of the sum that a reader reads; ``weight`` is a scalar or T x B, ``value`` T x B x d."""

    weight: Tensor
    value: Tensor

    def part(self) -> Tensor:
        """Return the term, T x B x d."""
        return self.weight.unsqueeze(-1) * self.value


class Trace(NamedTuple):
    """What has happened below a reader.

    Attributes:
        states: the states below each layer so far and below the reader, the reader's last.
        added: what each of these layers has added to what it read, T x B x d.
    """

    states: Sequence[Any]
    added: Sequence[Tensor]


def has_sources(connection: Any) -> bool:
    """Return whether the readers of a connection have sources with weights, for some number of layers."""
    return type(connection) in SOURCES


def sources_of(connection: Connection, trace: Trace) -> dict[str, Source]:
    """Return the sources of a reader by name; none where it reads only the state below."""
    return SOURCES[type(connection)](connection, trace) if has_sources(connection) else {}


def without(layer_input: Any, source: Source) -> Any:
    """Return what a reader reads without one of its sources; the other weights stay."""
    if isinstance(layer_input, ValueStream):
        assert layer_input.weights is not None  # only readers with weights have sources
        return layer_input._replace(weights=layer_input.weights - source.part())
    return layer_input - source.part()


def _of_blocks(connection: BlockConnection, trace: Trace) -> dict[str, Source]:
    """Return y_0 to y_b with row b of W, where block b + 1 starts and above the last block."""
    starts_block = (len(trace.states) - 1) % connection.block_size == 0
    if not starts_block:
        return {}
    state: BlockState = trace.states[-1]
    row = connection.rows[len(state.outputs) - 1]
    return _named(row.unbind(), state.outputs, "block")


def _of_averages(connection: AverageConnection, trace: Trace) -> dict[str, Source]:
    """Return X_0 to X_i with row i of a, above layer i; the first layer reads the embedding."""
    outputs = trace.states[-1].outputs
    if len(outputs) == 1:
        return {}
    row = connection.rows[len(outputs) - 2]
    return _named(row.unbind(), outputs, sublayers=connection.sublayers)


def _of_attention(connection: AttentionConnection, trace: Trace) -> dict[str, Source]:
    """Return the embedding and what layers or blocks added, with the softmax of q_l; the first layer has none."""
    state, layers_below = trace.states[-1], len(trace.states) - 1
    if not layers_below:
        return {}
    sources, scores = state.sources, state.scores
    if state.block is not None:
        sources = (*sources, state.block)
        scores = (*scores, source_scores(state.block, state.queries))
    weights = source_shares(scores, layers_below - 1).unbind(dim=-1)
    if connection.block_size == 1:
        return _named(weights, sources, sublayers=connection.sublayers)
    return _named(weights, sources, "block")


def _of_streams(connection: HyperConnection, trace: Trace) -> dict[str, Source]:
    """Return the embedding and what layers added, with their weights over all streams, H_pre H_res ... H_post."""
    embedded = trace.states[0].streams  # T x B x n x d, all streams alike
    # How much of each source each stream holds: T x B x n.
    shares = [torch.ones_like(embedded[..., 0])]
    for mixing, state in zip(connection.mixings, trace.states[:-1], strict=False):
        _, write, matrix = mixing(state.streams)
        if matrix is not None:
            shares = [(matrix @ share.unsqueeze(-1)).squeeze(-1) for share in shares]
        shares.append(write)

    if len(trace.states) <= len(connection.mixings):
        stream_weights, _, _ = connection.mixings[len(trace.states) - 1](trace.states[-1].streams)
    else:
        # The stack's output is the mean of the streams.
        stream_weights = torch.full_like(shares[0], 1 / connection.streams)
    weights = [(stream_weights * share).sum(-1) for share in shares]
    return _named(weights, (embedded[..., 0, :], *trace.added), sublayers=connection.sublayers)


def _of_values(connection: ValueResidualConnection, trace: Trace) -> dict[str, Source]:
    """Return the weights l_1 and l_2 with which a layer mixes values, as sources of the vector of both."""
    layers_below = len(trace.states) - 1
    if not 0 < layers_below <= len(connection.rows):
        return {}
    row: Any = connection.rows[layers_below - 1]
    names = ("values of layer 1", "its own values")
    return {name: Source(weight, axis) for name, weight, axis in zip(names, row, torch.eye(2).to(row), strict=True)}


#: Class of a connection -> what returns the sources of a reader, by name, from the connection and a trace.
SOURCES: dict[type[Connection], Callable[[Any, Trace], dict[str, Source]]] = {
    BlockConnection: _of_blocks,
    AverageConnection: _of_averages,
    AttentionConnection: _of_attention,
    HyperConnection: _of_streams,
    ValueResidualConnection: _of_values,
}


def _named(
    weights: Sequence[Tensor], values: Sequence[Tensor], part: str = "layer", sublayers: int = 1
) -> dict[str, Source]:
    """Name the sources: "embedding", "layer 1", ...; of sub-layers "layer 1a", "layer 1b", ..."""
    names = ["embedding", *(f"{part} {_place(number, sublayers)}" for number in range(len(values) - 1))]
    sources = map(Source, weights, values)
    return dict(zip(names, sources, strict=True))


def _place(number: int, sublayers: int) -> str:
    """Return the name of a layer or sub-layer, whose number counts from 0: "1", or "1a"."""
    if sublayers == 1:
        return str(number + 1)
    layer, sublayer = divmod(number, sublayers)
    return f"{layer + 1}{'abc'[sublayer]}"


class WatchedConnection(nn.Module):
    """Stands in place of a connection, and lets ``change`` return what each reader reads.

    ``change`` is called with the reader's place, its number from 1 or such as "1a" of sub-layers, the trace below it,
    and what it would read.
    """

    def __init__(self, connection: Connection, change: Callable[[int | str, Trace, Any], Any]) -> None:
        super().__init__()
        self.connection = connection
        self.sublayers = connection.sublayers
        self._change = change
        self._states: list[Any] = []
        self._added: list[Tensor] = []
        self._layer_input: Any = None

    def initial_state(self, embedded: Tensor) -> Any:
        self._states.clear()
        self._added.clear()
        return self.connection.initial_state(embedded)

    def layer_input(self, state: Any, index: int) -> Any:
        self._layer_input = self._changed(state, self.connection.layer_input(state, index))
        return self._layer_input

    def update(self, state: Any, index: int, output: Any) -> Any:
        # What a layer has added is its output less what it has read, which may have been changed.
        stream = stream_of(self._layer_input)
        self._added.append(stream_of(output) - stream)
        return self.connection.update(with_stream(state, stream), index, output)

    def representation(self, state: Any) -> Tensor:
        return self.connection.representation(state)

    def output(self, state: Any) -> Tensor:
        output: Tensor = self.connection.final_norm(self._changed(state, self.connection.final_norm_input(state)))
        return output

    def _changed(self, state: Any, layer_input: Any) -> Any:
        place = _place(len(self._states), self.sublayers)
        self._states.append(state)
        trace = Trace(self._states, self._added)
        return self._change(int(place) if self.sublayers == 1 else place, trace, layer_input)


@contextmanager
def changed_readers(stack: Stack, change: Callable[[int | str, Trace, Any], Any]) -> Iterator[None]:
    """Let ``change`` return what each reader of a stack reads, as in :class:`WatchedConnection`, while it is open."""
    connection = stack.connection
    watched: Any = WatchedConnection(connection, change)
    stack.connection = watched
    try:
        yield
    finally:
        stack.connection = connection
