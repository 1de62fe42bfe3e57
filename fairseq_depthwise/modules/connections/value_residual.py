"""Values of the first layer's attention in all the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fairseq_depthwise.modules.residual_layers import ResidualDecoderLayer, ResidualEncoderLayer
from fairseq_depthwise.modules.stack import Connection, OfLayers, StackShape


class ValueStream(NamedTuple):
    """What runs up the stack.

    Attributes:
        stream: T x B x d.
        first: V_1, the first layer's values before they are split into heads, T x B x d; None below that layer.
        weights: what the next layer mixes them with: l_1 and l_2; None as well.
    """

    stream: Tensor
    first: Tensor | None = None
    weights: Tensor | None = None


class _WithValues(nn.Module):
    """A residual layer that reads and passes on the first layer's values; a decoder's cross-attention is as ever."""

    def forward(self, read: ValueStream, *others: Any, **options: Any) -> Any:
        """Compute what the residual layer does, with what runs up the stack in the place of T x B x d."""
        blend = None if read.weights is None else (read.first, read.weights)
        returned = super().forward(read.stream, *others, blend=blend, **options)
        if isinstance(returned, Tensor):
            return self.carried(read)._replace(stream=returned)
        return self.carried(read)._replace(stream=returned[0]), returned[1]

    def carried(self: Any, read: ValueStream) -> ValueStream:
        """Return what goes past the layer: the stream as it came, and the first layer's values."""
        if read.first is not None:
            return read
        return ValueStream(read.stream, self.self_attention.values_of(self.self_attention_norm(read.stream)))


class ValueResidualEncoderLayer(_WithValues, ResidualEncoderLayer):  # type: ignore[misc]  # reads a pair
    """The encoder's."""


class ValueResidualDecoderLayer(_WithValues, ResidualDecoderLayer):  # type: ignore[misc]  # as above
    """The decoder's."""


class ValueResidualConnection(Connection):
    """Value residuals: the values of layer n's self-attention are ``l_1 V_1 + l_2 V_n``.

    Source: "Value Residual Learning" (Zhou et al. 2024, arXiv 2410.17897), ResFormer with learned weights: two scalars
    for each layer but the first, 0.5 at first. V_1 and V_n are of the same position, so a step of a search needs
    nothing of earlier steps.
    """

    encoder_layer = ValueResidualEncoderLayer
    decoder_layer = ValueResidualDecoderLayer

    def __init__(self, shape: StackShape) -> None:
        super().__init__(shape)
        self.of_layers = {"rows": OfLayers(first=1)}
        #: l_1 and l_2 of the second layer, the third and so on.
        self.rows = nn.ParameterList(torch.full((2,), 0.5) for _ in range(shape.layers - 1))

    def initial_state(self, embedded: Tensor) -> ValueStream:
        return ValueStream(embedded)

    def layer_input(self, state: ValueStream, index: int) -> ValueStream:
        return state if state.first is None else ValueStream(state.stream, state.first, self.rows[index - 1])

    def source_weights(self, states: Sequence[ValueStream]) -> dict[str, Tensor]:
        """Return l_1 and l_2, which the layer that reads the last state mixes its values with."""
        below = len(states) - 1
        if not 0 < below <= len(self.rows):
            return {}
        return dict(zip(("values of layer 1", "its own values"), self.rows[below - 1].unbind(), strict=True))

    def source_parts(self, states: Sequence[ValueStream]) -> dict[str, Tensor]:
        """Return l_1 and l_2 as parts of the weights, which is where :meth:`without` leaves them out."""
        weights = self.source_weights(states)
        return dict(zip(weights, torch.stack(list(weights.values())).diag(), strict=True)) if weights else {}

    def without(self, read: ValueStream, part: Tensor) -> ValueStream:
        """Return what a layer reads with one of the weights 0."""
        return read if read.weights is None else read._replace(weights=read.weights - part)
