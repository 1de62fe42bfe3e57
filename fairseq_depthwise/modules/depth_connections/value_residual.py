"""Values of the first layer's attention in all other layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fairseq_depthwise.modules.residual_layers import ResidualDecoderLayer, ResidualEncoderLayer
from fairseq_depthwise.modules.stack import Connection, OfLayers, StackShape


class ValueStream(NamedTuple):
    """What runs up the stack.

    Attributes:
        stream: T x B x d.
        first_values: V_1, the first layer's values before they are split into heads, T x B x d; None below that layer.
        weights: l_1 and l_2, with which the next layer mixes V_1 and its own values; None below the first layer.
    """

    stream: Tensor
    first_values: Tensor | None = None
    weights: Tensor | None = None


class _WithValues(nn.Module):
    """A residual layer that reads and passes on the first layer's values; a decoder's cross-attention is unchanged."""

    def forward(self, state: ValueStream, *args: Any, **options: Any) -> Any:
        """Compute what the residual layer does, with a :class:`ValueStream` in place of T x B x d."""
        blend = None if state.weights is None else (state.first_values, state.weights)
        returned = super().forward(state.stream, *args, blend=blend, **options)
        above = self.carried(state)
        # A decoder layer also returns attention weights.
        if isinstance(returned, Tensor):
            return above._replace(stream=returned)
        stream, weights = returned
        return above._replace(stream=stream), weights

    def carried(self: Any, state: ValueStream) -> ValueStream:
        """Return what goes past the layer: the stream as it came, and the first layer's values."""
        if state.first_values is not None:
            return state
        first_values = self.self_attention.project_values(self.self_attention_norm(state.stream))
        return ValueStream(state.stream, first_values)


class ValueResidualEncoderLayer(_WithValues, ResidualEncoderLayer):  # type: ignore[misc]  # reads another state
    """The encoder's layer."""


class ValueResidualDecoderLayer(_WithValues, ResidualDecoderLayer):  # type: ignore[misc]  # as above
    """The decoder's layer."""


class ValueResidualConnection(Connection):
    """Value residuals: the values of layer n's self-attention are ``l_1 V_1 + l_2 V_n``.

    Source: "Value Residual Learning" (Zhou et al. 2024, arXiv 2410.17897), ResFormer with learned weights: two scalars
    for each layer but the first, initialized to 0.5. V_1 and V_n are of the same position, so a step of a search needs
    nothing of earlier steps.
    """

    of_layers: Mapping[str, OfLayers] = {"rows": OfLayers(first=1)}
    encoder_layer = ValueResidualEncoderLayer
    decoder_layer = ValueResidualDecoderLayer

    def __init__(self, shape: StackShape) -> None:
        super().__init__(shape)
        #: l_1 and l_2 of the second layer, the third and so on.
        self.rows = nn.ParameterList(torch.full((2,), 0.5) for _ in range(shape.layers - 1))

    def initial_state(self, embedded: Tensor) -> ValueStream:
        return ValueStream(embedded)

    def layer_input(self, state: ValueStream, index: int) -> ValueStream:
        if state.first_values is None:
            return state
        return state._replace(weights=self.rows[index - 1])
