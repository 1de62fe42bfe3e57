"""What connects the layers of a stack.

A connection makes the stack's first state from the embedding, and the stack's output from its last state; the layers
map state to state. For the depth-wise model a state is the pair (output, cell).
"""

from __future__ import annotations

from torch import Tensor, nn

from fairseq_depthwise.modules.depthwise_cell import DepthwiseState


class DepthwiseConnection(nn.Module):
    """The depth-wise LSTM's ends of the stack: ``Out_0 = Cell_0 =`` the embedding; a layer norm on top.

    Args:
        embed_dim: d.
    """

    def __init__(self, *, embed_dim: int) -> None:
        super().__init__()
        self.final_norm = nn.LayerNorm(embed_dim)

    def start(self, embedded: Tensor) -> DepthwiseState:
        """``embedded`` (T x B x d) to the state below the first layer."""
        return DepthwiseState(output=embedded, cell=embedded)

    def hidden(self, state: DepthwiseState) -> Tensor:
        """What a layer shows to the outside (T x B x d)."""
        return state.output

    def finish(self, state: DepthwiseState) -> Tensor:
        """The state above the last layer to the stack's output (T x B x d)."""
        return self.final_norm(state.output)
