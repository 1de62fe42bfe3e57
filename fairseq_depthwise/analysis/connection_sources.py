"""The sources and weights that each reader of a connection reads, recorded or changed while a stack runs.

The readers of a stack are its layers and, last, the output of the stack, before the final layer norm. Each reads a
weighted sum of sources, such as the outputs of the layers below. To measure a new connection, add a function here that
returns the sources of a reader, and a line in ``SOURCES``.
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

#: Name of the reader above the last layer, the output of the stack.
OUTPUT = "output"


class Source(NamedTuple):
    """One term of the sum that a reader reads; ``weight`` is a scalar or T x B, ``value`` T x B x d."""

    weight: Tensor
    value: Tensor

    def weighted_value(self) -> Tensor:
        """Return the term, T x B x d."""
        return self.weight.unsqueeze(-1) * self.value


class Trace(NamedTuple):
    """The computation of a stack up to a reader.

    Attributes:
        states: the connection's state below each layer so far and, last, below the reader.
        added: for each of these layers, its output minus its input, T x B x d.
    """

    states: Sequence[Any]
    added: Sequence[Tensor]


def has_sources(connection: Any) -> bool:
    """Return whether the readers of a connection have sources with weights (perhaps only in deeper stacks)."""
    return type(connection) in SOURCES


def find_sources(connection: Connection, trace: Trace) -> dict[str, Source]:
    """Return the sources of a reader by name; none if it reads only the state below."""
    if not has_sources(connection):
        return {}
    find = SOURCES[type(connection)]
    return find(connection, trace)


def subtract_source(layer_input: Any, source: Source) -> Any:
    """Return the input of a reader without one of its sources; the other weights stay."""
    if isinstance(layer_input, ValueStream):
        assert layer_input.weights is not None  # only readers with weights have sources
        return layer_input._replace(weights=layer_input.weights - source.weighted_value())
    return layer_input - source.weighted_value()


def _find_block_sources(connection: BlockConnection, trace: Trace) -> dict[str, Source]:
    """Return y_0 to y_b with row b of W, if the reader starts block b + 1 or is above the last block."""
    starts_block = (len(trace.states) - 1) % connection.block_size == 0
    if not starts_block:
        return {}
    state: BlockState = trace.states[-1]
    row = connection.rows[len(state.outputs) - 1]
    return _name_sources(row.unbind(), state.outputs, part="block")


def _find_average_sources(connection: AverageConnection, trace: Trace) -> dict[str, Source]:
    """Return X_0 to X_i with row i of a, above layer i; the first layer reads the embedding."""
    outputs = trace.states[-1].outputs
    if len(outputs) == 1:
        return {}
    row = connection.rows[len(outputs) - 2]
    return _name_sources(row.unbind(), outputs, sublayers=connection.sublayers)


def _find_attention_sources(connection: AttentionConnection, trace: Trace) -> dict[str, Source]:
    """Return the embedding and what layers or blocks added, with the softmax of q_l; the first layer has none."""
    state = trace.states[-1]
    layers_below = len(trace.states) - 1
    if layers_below == 0:
        return {}
    sources, scores = state.sources, state.scores
    if state.block is not None:
        sources = (*sources, state.block)
        scores = (*scores, source_scores(state.block, state.queries))
    weights = source_shares(scores, layers_below - 1).unbind(dim=-1)
    if connection.block_size == 1:
        return _name_sources(weights, sources, sublayers=connection.sublayers)
    return _name_sources(weights, sources, part="block")


def _find_stream_sources(connection: HyperConnection, trace: Trace) -> dict[str, Source]:
    """Return the embedding and what layers added, with their weights over all streams, H_pre H_res ... H_post."""
    embedded = trace.states[0].streams  # T x B x n x d, all streams alike
    # The weight of each source in each stream: T x B x n.
    source_weights = [torch.ones_like(embedded[..., 0])]
    for mixing, state in zip(connection.mixings, trace.states[:-1], strict=False):
        _, write, matrix = mixing(state.streams)
        if matrix is not None:
            source_weights = [(matrix @ weight.unsqueeze(-1)).squeeze(-1) for weight in source_weights]
        source_weights.append(write)

    if len(trace.states) <= len(connection.mixings):
        stream_weights, _, _ = connection.mixings[len(trace.states) - 1](trace.states[-1].streams)
    else:
        # The stack's output is the mean of the streams.
        stream_weights = torch.full_like(source_weights[0], 1 / connection.streams)
    weights = [(stream_weights * weight).sum(-1) for weight in source_weights]
    return _name_sources(weights, (embedded[..., 0, :], *trace.added), sublayers=connection.sublayers)


def _find_value_sources(connection: ValueResidualConnection, trace: Trace) -> dict[str, Source]:
    """Return the weights l_1 and l_2 with which a layer mixes values, as sources of the vector (l_1, l_2)."""
    layers_below = len(trace.states) - 1
    if not 0 < layers_below <= len(connection.rows):
        return {}
    row: Any = connection.rows[layers_below - 1]
    first_axis, second_axis = torch.eye(2).to(row)
    return {
        "values of layer 1": Source(row[0], first_axis),
        "its own values": Source(row[1], second_axis),
    }


#: Class of a connection -> function(connection, trace) that returns the sources of a reader by name.
SOURCES: dict[type[Connection], Callable[[Any, Trace], dict[str, Source]]] = {
    BlockConnection: _find_block_sources,
    AverageConnection: _find_average_sources,
    AttentionConnection: _find_attention_sources,
    HyperConnection: _find_stream_sources,
    ValueResidualConnection: _find_value_sources,
}


def _name_sources(
    weights: Sequence[Tensor], values: Sequence[Tensor], part: str = "layer", sublayers: int = 1
) -> dict[str, Source]:
    """Return the sources by name: "embedding", "layer 1", ...; for sub-layers "layer 1a", "layer 1b", ..."""
    names = ["embedding"]
    for number in range(len(values) - 1):
        names.append(f"{part} {_name_layer(number, sublayers)}")
    sources = map(Source, weights, values)
    return dict(zip(names, sources, strict=True))


def _name_layer(number: int, sublayers: int) -> str:
    """Return the name of a layer or sub-layer, whose number counts from 0: "1", or "1a"."""
    if sublayers == 1:
        return str(number + 1)
    layer, sublayer = divmod(number, sublayers)
    return f"{layer + 1}{'abc'[sublayer]}"


class WatchedConnection(nn.Module):
    """Replaces a connection, and passes the input of each reader through ``change``.

    ``change``: function(reader, trace, layer input) that returns the input to use. The reader is a layer's number from
    1, for sub-layers a name such as "1a", and ``OUTPUT`` above the last.
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
        name = _name_layer(index, self.sublayers)
        reader = int(name) if self.sublayers == 1 else name
        self._layer_input = self._change_input(state, self.connection.layer_input(state, index), reader)
        return self._layer_input

    def update(self, state: Any, index: int, output: Any) -> Any:
        # A layer adds its output minus its input, which may have been changed.
        stream = stream_of(self._layer_input)
        self._added.append(stream_of(output) - stream)
        return self.connection.update(with_stream(state, stream), index, output)

    def representation(self, state: Any) -> Tensor:
        return self.connection.representation(state)

    def output(self, state: Any) -> Tensor:
        changed = self._change_input(state, self.connection.final_norm_input(state), OUTPUT)
        output: Tensor = self.connection.final_norm(changed)
        return output

    def _change_input(self, state: Any, layer_input: Any, reader: int | str) -> Any:
        """Record the state, and return the input that ``change`` makes of ``layer_input``."""
        self._states.append(state)
        return self._change(reader, Trace(self._states, self._added), layer_input)


@contextmanager
def change_readers(stack: Stack, change: Callable[[int | str, Trace, Any], Any]) -> Iterator[None]:
    """Within the context, pass the input of each reader of a stack through ``change`` of :class:`WatchedConnection`."""
    connection = stack.connection
    watched: Any = WatchedConnection(connection, change)
    stack.connection = watched
    try:
        yield
    finally:
        stack.connection = connection
