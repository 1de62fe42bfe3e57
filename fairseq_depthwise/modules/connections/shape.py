"""What every connection over depth is built from, and the plain one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fairseq_depthwise.modules.residual_layers import ResidualDecoderLayer, ResidualEncoderLayer
from fairseq_depthwise.modules.stack import Connection


@dataclass(frozen=True)
class StackShape:
    """Sizes of the stack that is connected.

    Attributes:
        embed_dim: d.
        layers: L.
        block_size: layers in a block, for connections that know blocks; 0 without.
        streams: n, for connections with several streams.
        manifold: whether these are mixed by doubly stochastic matrices.
    """

    embed_dim: int
    layers: int
    block_size: int = 0
    streams: int = 4
    manifold: bool = False


class ShapedConnection(Connection):
    """A connection that is built from the shape of its stack.

    Attributes:
        has_blocks: whether it reads ``StackShape.block_size``.
        encoder_layer, decoder_layer: the layers that it connects.
    """

    has_blocks = False
    encoder_layer: type[ResidualEncoderLayer] = ResidualEncoderLayer
    decoder_layer: type[ResidualDecoderLayer] = ResidualDecoderLayer

    def __init__(self, shape: StackShape) -> None:
        super().__init__(embed_dim=shape.embed_dim)

    def source_weights(self, states: Sequence[Any]) -> dict[str, Tensor]:
        """Return the weight (T x B or a scalar) of each source in what is read of the last of ``states``, by name.

        The states are those below each layer, then that of the stack's output; nothing where all is read alike.
        """
        return {}


class StreamConnection(ShapedConnection):
    """A connection whose state has what runs up the stack as its ``stream``, T x B x d, beside other things."""

    def layer_input(self, state: Any, index: int) -> Any:
        return state.stream

    def representation(self, state: Any) -> Tensor:
        stream: Tensor = state.stream
        return stream


class ResidualConnection(ShapedConnection):
    """Each layer reads the output of the one before: with residual layers the pre-norm Transformer."""


def source_names(count: int, part: str = "layer") -> list[str]:
    """Return the names of ``count`` sources, of which the embedding is the first: "embedding", "layer 1", ..."""
    return ["embedding", *(f"{part} {number}" for number in range(1, count))]


def weighted_sum(outputs: Sequence[Tensor], weights: Sequence[Tensor]) -> Tensor:
    """Compute ``sum_j w_j y_j``, T x B x d; weights are scalars, or T x B x 1."""
    total = outputs[0] * weights[0]
    for output, weight in zip(outputs[1:], weights[1:], strict=True):
        total = torch.addcmul(total, output, weight)
    return total
