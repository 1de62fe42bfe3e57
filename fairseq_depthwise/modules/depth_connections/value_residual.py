"""Value residuals: later layers mix the first layer's attention values into their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fairseq_depthwise.modules.residual_layers import ResidualDecoderLayer, ResidualEncoderLayer
from fairseq_depthwise.modules.stack import Connection, OfLayers, StackShape


class ValueStream(NamedTuple):
    """The state passed from layer to layer.

    Attributes:
        stream: T x B x d.
        first_values: V_1, the first layer's values before they are split into heads, T x B x d; None before the first
            layer.
        weights: l_1 and l_2, with which the next layer mixes V_1 and its own values; None in the first layer, which
            has nothing to mix.
    """

    stream: Tensor
    first_values: Tensor | None = None
    weights: Tensor | None = None


class _WithValues(nn.Module):
    """A residual layer that reads and passes on the first layer's values; a decoder's cross-attention is unchanged."""

    def forward(self, state: ValueStream, *args: Any, **options: Any) -> Any:
        """Compute what the residual layer does, with a :class:`ValueStream` in place of T x B x d."""
        # Self-attention uses l_1 V_1 + l_2 V_n as its values, see :meth:`MultiheadAttention.forward`.
        blend = None if state.weights is None else (state.first_values, state.weights)
        returned = super().forward(state.stream, *args, blend=blend, **options)
        next_state = self.with_first_values(state)
        # A decoder layer also returns attention weights.
        if isinstance(returned, Tensor):
            return next_state._replace(stream=returned)
        stream, weights = returned
        return next_state._replace(stream=stream), weights

    def with_first_values(self: Any, state: ValueStream) -> ValueStream:
        """Return the state with the first layer's values, which the first layer computes."""
        if state.first_values is not None:
            return state
        # Only the first layer gets here; its attention has computed the same values.
        first_values = self.self_attention.project_values(self.self_attention_norm(state.stream))
        return ValueStream(state.stream, first_values)


class ValueResidualEncoderLayer(_WithValues, ResidualEncoderLayer):  # type: ignore[misc]  # takes a ValueStream
    """An encoder layer with value residuals."""


class ValueResidualDecoderLayer(_WithValues, ResidualDecoderLayer):  # type: ignore[misc]  # takes a ValueStream
    """A decoder layer with value residuals."""


class ValueResidualConnection(Connection):
    """Value residuals: the values of layer n's self-attention are ``l_1 V_1 + l_2 V_n``.

    Source: "Value Residual Learning" (Zhou et al. 2024, arXiv 2410.17897), ResFormer with learned weights: two scalars
    for each layer but the first, initialized to 0.5. Each position mixes only its own V_1 and V_n, so incremental
    decoding caches nothing more.
    """

    # Item 0 of ``rows`` belongs to layer 1. Checkpoints contain the name.
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
