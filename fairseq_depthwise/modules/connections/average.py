"""Averages over depth with learned weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fairseq_depthwise.modules.connections.sources import StreamAndOutputs, source_names, weighted_parts, weighted_sum
from fairseq_depthwise.modules.stack import Connection, OfLayers, StackShape


class AverageConnection(Connection):
    """Depth-weighted averages: after layer i the stream is ``sum_{j=0..i} a_ij X_j``.

    Source: "DenseFormer: Enhancing Information Flow in Transformers via Depth Weighted Averaging" (Pagliardini et al.
    2024), Equations 1 and 2, without dilation and with period 1. X_0 is the embedding and X_j the output of layer j,
    counted from 1, before averaging. The weights are free scalars; at first a_ii is 1 and the others are 0, which is
    the plain pre-norm Transformer.
    """

    has_units = True

    def __init__(self, shape: StackShape) -> None:
        super().__init__(shape)
        self.of_layers = {"rows": OfLayers(weighs=True, units=self.units)}
        #: Row i of a, counted from 0, with i + 2 weights.
        self.rows = nn.ParameterList(torch.arange(row + 2).eq(row + 1).float() for row in range(shape.layers))

    def initial_state(self, embedded: Tensor) -> StreamAndOutputs:
        return StreamAndOutputs(embedded, (embedded,))

    def update(self, state: StreamAndOutputs, index: int, output: Tensor) -> StreamAndOutputs:
        outputs = (*state.outputs, output)
        return StreamAndOutputs(weighted_sum(outputs, self.rows[index].unbind()), outputs)

    def source_weights(self, states: Sequence[StreamAndOutputs]) -> dict[str, Tensor]:
        """Return row i of a, above layer i: the weights of X_0 to X_i."""
        outputs = len(states[-1].outputs)
        if outputs == 1:  # the first layer reads the embedding
            return {}
        return dict(zip(source_names(outputs, units=self.units), self.rows[outputs - 2].unbind(), strict=True))

    def source_parts(self, states: Sequence[StreamAndOutputs]) -> dict[str, Tensor]:
        """Return a_ij X_j."""
        weights = self.source_weights(states)
        return weighted_parts(states[-1].outputs, weights) if weights else {}
