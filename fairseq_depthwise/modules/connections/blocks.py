"""Sparse connections between the blocks of a shallow-to-deep encoder."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fairseq_depthwise.modules.connections.sources import StreamAndOutputs, source_names, weighted_parts, weighted_sum
from fairseq_depthwise.modules.stack import Connection, OfLayers, StackShape


class BlockConnection(Connection):
    """Sparse connections between blocks of ``block_size`` layers.

    Source: "Shallow-to-Deep Training for Neural Machine Translation", Section 4.2. With y_0 the embedding and
    ``y_b = LN_b(output of block b)``, block b + 1 reads ``sum_{j=0..b} W[b, j] y_j`` in place of the output of block
    b, and the stack's output is the layer norm of that sum over all blocks. Blocks of one layer are the dense
    connections of Wang et al. 2019 (DLCL). The weights are free scalars, 1/(b+1) at first.
    """

    has_blocks = True

    def __init__(self, shape: StackShape) -> None:
        super().__init__(shape)
        self.block_size = block_size = shape.block_size
        blocks = shape.layers // block_size
        # Where new blocks are copies, rows stay as in the paper: that of the output becomes the lowest new block's.
        self.of_layers = {
            "rows": OfLayers(step=block_size, weighs=True, stays=True),
            "norms": OfLayers(first=block_size - 1, step=block_size),
        }
        #: Row b of W, with b + 1 weights.
        self.rows = nn.ParameterList(torch.full((row + 1,), 1 / (row + 1)) for row in range(blocks + 1))
        #: LN_1 to LN_B, of the blocks' outputs.
        self.norms = nn.ModuleList(nn.LayerNorm(shape.embed_dim) for _ in range(blocks))

    def initial_state(self, embedded: Tensor) -> StreamAndOutputs:
        return StreamAndOutputs(stream=embedded, outputs=(embedded,))

    def layer_input(self, state: StreamAndOutputs, index: int) -> Tensor:
        starts_block = index % self.block_size == 0
        return self._sum(state.outputs) if starts_block else state.stream

    def update(self, state: StreamAndOutputs, index: int, output: Tensor) -> StreamAndOutputs:
        block, place = divmod(index, self.block_size)
        if place < self.block_size - 1:
            return StreamAndOutputs(output, state.outputs)
        return StreamAndOutputs(output, (*state.outputs, self.norms[block](output)))

    def output(self, state: StreamAndOutputs) -> Tensor:
        output: Tensor = self.final_norm(self._sum(state.outputs))
        return output

    def source_weights(self, states: Sequence[StreamAndOutputs]) -> dict[str, Tensor]:
        """Return row b of W where block b + 1 starts, and above the last block: the weights of y_0 to y_b."""
        if (len(states) - 1) % self.block_size:
            return {}
        row = self.rows[len(states[-1].outputs) - 1]
        return dict(zip(source_names(len(row), "block"), row.unbind(), strict=True))

    def source_parts(self, states: Sequence[StreamAndOutputs]) -> dict[str, Tensor]:
        """Return W[b, j] y_j."""
        weights = self.source_weights(states)
        return weighted_parts(states[-1].outputs, weights) if weights else {}

    def _sum(self, outputs: tuple[Tensor, ...]) -> Tensor:
        """Compute ``sum_j W[b, j] y_j`` for y_0 to y_b."""
        return weighted_sum(outputs, self.rows[len(outputs) - 1].unbind())
