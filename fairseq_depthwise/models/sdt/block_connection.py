"""Sparse connections between the blocks of a shallow-to-deep encoder."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from fairseq_depthwise.modules.stack import Connection, OfLayers, StackShape
from fairseq_depthwise.modules.weighted_sum import weighted_sum


class BlockState(NamedTuple):
    """What runs up the stack, T x B x d each.

    Attributes:
        stream: the output of the last layer so far.
        outputs: y_0 to y_b, the embedding and the normalized outputs of the blocks so far.
    """

    stream: Tensor
    outputs: tuple[Tensor, ...]


class BlockConnection(Connection):
    """Sparse connections between blocks of ``block_size`` layers.

    Source: "Shallow-to-Deep Training for Neural Machine Translation", Section 4.2. With y_0 the embedding and
    ``y_b = LN_b(output of block b)``, block b + 1 reads ``sum_{j=0..b} W[b, j] y_j`` in place of the output of block
    b, and the stack's output is the layer norm of that sum over all blocks. Blocks of one layer are the dense
    connections of Wang et al. 2019 (DLCL). The weights are free scalars, initialized to 1/(b+1).
    """

    has_blocks = True

    def __init__(self, shape: StackShape) -> None:
        super().__init__(shape)
        self.block_size = shape.block_size
        blocks = shape.layers // shape.block_size
        # In the paper, rows of W stay at their place when blocks are copied: the row of the output becomes that of the
        # lowest new block.
        self.of_layers = {
            "rows": OfLayers(step=shape.block_size, weighs=True, stays=True),
            "norms": OfLayers(first=shape.block_size - 1, step=shape.block_size),
        }
        #: Row b of W, with b + 1 weights, for b = 0 to B.
        self.rows = nn.ParameterList(torch.full((row + 1,), 1 / (row + 1)) for row in range(blocks + 1))
        #: LN_1 to LN_B, of the blocks' outputs.
        self.norms = nn.ModuleList(nn.LayerNorm(shape.embed_dim) for _ in range(blocks))

    def initial_state(self, embedded: Tensor) -> BlockState:
        return BlockState(stream=embedded, outputs=(embedded,))

    def layer_input(self, state: BlockState, index: int) -> Tensor:
        starts_block = index % self.block_size == 0
        return self._sum(state.outputs) if starts_block else state.stream

    def update(self, state: BlockState, index: int, output: Tensor) -> BlockState:
        block, place = divmod(index, self.block_size)
        ends_block = place == self.block_size - 1
        if not ends_block:
            return BlockState(output, state.outputs)
        return BlockState(output, (*state.outputs, self.norms[block](output)))

    def final_norm_input(self, state: BlockState) -> Tensor:
        return self._sum(state.outputs)

    def _sum(self, outputs: tuple[Tensor, ...]) -> Tensor:
        """Compute ``sum_j W[b, j] y_j`` for y_0 to y_b, T x B x d."""
        row = self.rows[len(outputs) - 1]
        return weighted_sum(outputs, row.unbind())
