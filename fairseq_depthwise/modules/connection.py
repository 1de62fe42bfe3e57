"""What connects the layers of a stack.

A connection carries a state from the embedding to the stack's output: :meth:`Connection.start` makes it, each layer
reads what :meth:`Connection.below` gives and :meth:`Connection.above` takes what it computed, and
:meth:`Connection.finish` makes the output. A layer knows nothing of the connection, except that both agree on what is
passed between them: for the depth-wise model the pair (output, cell), for residual layers one tensor, T x B x C.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fairseq_depthwise.models.depthwise_lstm.cell import DepthwiseState


class Connection(nn.Module):
    """The simplest one: what a layer returns is what the next one reads, and a layer norm ends the stack.

    With residual layers this is the pre-norm Transformer.

    Args:
        embed_dim: d.
    """

    def __init__(self, *, embed_dim: int) -> None:
        super().__init__()
        self.final_norm = nn.LayerNorm(embed_dim)

    def start(self, embedded: Tensor) -> Any:
        """``embedded`` (T x B x d) to the state below the first layer."""
        return embedded

    def below(self, state: Any, index: int) -> Any:
        """What layer ``index``, counted from 0, reads."""
        return state

    def above(self, state: Any, index: int, output: Any) -> Any:
        """The state after layer ``index`` returned ``output``."""
        return output

    def hidden(self, state: Any) -> Tensor:
        """What the layer shows to the outside (T x B x d)."""
        hidden: Tensor = state
        return hidden

    def finish(self, state: Any) -> Tensor:
        """The state above the last layer to the stack's output (T x B x d)."""
        output: Tensor = self.final_norm(self.hidden(state))
        return output


class DepthwiseConnection(Connection):
    """The depth-wise LSTM's ends of the stack: ``Out_0 = Cell_0 =`` the embedding; a layer norm on top."""

    def start(self, embedded: Tensor) -> DepthwiseState:
        return DepthwiseState(output=embedded, cell=embedded)

    def hidden(self, state: DepthwiseState) -> Tensor:
        return state.output


class BlockState(NamedTuple):
    """``stream``: what runs up a block, T x B x d; ``outputs``: y_0 to y_b of the blocks so far, T x B x d each."""

    stream: Tensor
    outputs: tuple[Tensor, ...]


class BlockConnection(Connection):
    """Sparse connections between blocks of ``block_size`` layers.

    Source: "Shallow-to-Deep Training for Neural Machine Translation", Section 4.2. With y_0 the embedding and
    ``y_b = LN_b(output of block b)``, block b + 1 reads ``sum_{j=0..b} W[b, j] y_j`` in place of the output of block
    b, and the stack's output is the layer norm of that sum over all blocks. Blocks of one layer are the dense
    connections of Wang et al. 2019 (DLCL). The weights are free scalars, 1/(b+1) at first.

    Args:
        embed_dim: d.
        layers: number of layers; a multiple of ``block_size``.
        block_size: p.
    """

    def __init__(self, *, embed_dim: int, layers: int, block_size: int) -> None:
        super().__init__(embed_dim=embed_dim)
        if layers % block_size:
            raise ValueError(f"{layers} layers are not a number of whole blocks of {block_size}")
        blocks = layers // block_size
        self.block_size = block_size
        #: Row b of W, with b + 1 weights.
        self.rows = nn.ParameterList(torch.full((row + 1,), 1 / (row + 1)) for row in range(blocks + 1))
        #: LN_1 to LN_B, of the blocks' outputs.
        self.norms = nn.ModuleList(nn.LayerNorm(embed_dim) for _ in range(blocks))

    def start(self, embedded: Tensor) -> BlockState:
        return BlockState(stream=embedded, outputs=(embedded,))

    def below(self, state: BlockState, index: int) -> Tensor:
        starts_block = index % self.block_size == 0
        return self._weighted_sum(state.outputs) if starts_block else state.stream

    def above(self, state: BlockState, index: int, output: Tensor) -> BlockState:
        block, place = divmod(index, self.block_size)
        if place < self.block_size - 1:
            return BlockState(output, state.outputs)
        return BlockState(output, (*state.outputs, self.norms[block](output)))

    def hidden(self, state: BlockState) -> Tensor:
        return state.stream

    def finish(self, state: BlockState) -> Tensor:
        output: Tensor = self.final_norm(self._weighted_sum(state.outputs))
        return output

    def _weighted_sum(self, outputs: tuple[Tensor, ...]) -> Tensor:
        """``sum_j W[b, j] y_j`` for y_0 to y_b."""
        weights = self.rows[len(outputs) - 1].unbind()
        total = outputs[0] * weights[0]
        for output, weight in zip(outputs[1:], weights[1:], strict=True):
            total = torch.addcmul(total, output, weight)
        return total
