"""The depth-wise LSTM cell: what connects one layer of a stack with the next instead of a residual connection.

Source: "Rewiring the Transformer with Depth-Wise LSTMs", Section 2.1. The equations' symbols in this file:
``c`` is :func:`torch.cat` of the output so far and the layer's attention, d the model width, H the width of the hidden
net. The cell has no state over time: its recurrence runs over layers, at every position by itself, so decoding caches
nothing of it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: Epsilon of the layer norms inside the cell.
NORM_EPS = 1e-6


class DepthwiseState(NamedTuple):
    """What runs up the stack: ``output`` and ``cell``, each T x B x d."""

    output: Tensor
    cell: Tensor


class Gates(nn.Module):
    """Input, forget and output gate (Eqs 2-4): ``sigmoid(LN(W c))`` each, without linear biases.

    The three products are one; each gate has its own layer norm with its own statistics over d.

    Args:
        input_dim: width of c (2d, or 3d where a decoder layer concatenates its two attentions).
        embed_dim: d.
    """

    def __init__(self, *, input_dim: int, embed_dim: int) -> None:
        super().__init__()
        self.embed_dim = embed_dim
        self.projection = nn.Linear(input_dim, 3 * embed_dim, bias=False)
        self.norm_weight = nn.Parameter(torch.ones(3, embed_dim))
        self.norm_bias = nn.Parameter(torch.zeros(3, embed_dim))

    def forward(self, joined: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """``joined``, T x B x input_dim, to (input gate, forget gate, output gate), each T x B x d."""
        projected = self.projection(joined).unflatten(-1, (3, self.embed_dim))
        normalised = F.layer_norm(projected, (self.embed_dim,), eps=NORM_EPS)
        gates = torch.sigmoid(normalised * self.norm_weight + self.norm_bias)
        input_gate, forget_gate, output_gate = gates.unbind(dim=-2)
        return input_gate, forget_gate, output_gate


class HiddenNet(nn.Module):
    """The two-layer net that computes the new hidden value (Eq 6): ``h = W_h2 GLU(LN(W_h1 c))``, without biases.

    Args:
        input_dim: width of c.
        embed_dim: d.
        hidden_dim: H, the width before the GLU halves it; must be even.
        dropout: dropout of the net's output.
        activation_dropout: dropout after the GLU.
    """

    def __init__(
        self,
        *,
        input_dim: int,
        embed_dim: int,
        hidden_dim: int,
        dropout: float = 0.0,
        activation_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if hidden_dim % 2:
            raise ValueError(f"hidden_dim {hidden_dim} is odd; the GLU halves it")
        self.first = nn.Linear(input_dim, hidden_dim, bias=False)  # W_h1
        self.norm = nn.LayerNorm(hidden_dim, eps=NORM_EPS)
        self.second = nn.Linear(hidden_dim // 2, embed_dim, bias=False)  # W_h2
        self.dropout = nn.Dropout(dropout)
        self.activation_dropout = nn.Dropout(activation_dropout)

    def forward(self, joined: Tensor) -> Tensor:
        """``joined``, T x B x input_dim, to the hidden value h, T x B x d."""
        activated = F.glu(self.norm(self.first(joined)), dim=-1)
        return self.dropout(self.second(self.activation_dropout(activated)))


class DepthwiseLSTMCell(nn.Module):
    """One step up the stack (Eqs 1, 7, 8); there is no tanh on the cell.

    Args:
        gates: the gates, one object given to every layer that shares them.
        hidden_net: computes h from c.
    """

    def __init__(self, *, gates: nn.Module, hidden_net: nn.Module) -> None:
        super().__init__()
        self.gates = gates
        self.hidden_net = hidden_net

    def forward(self, attended: Tensor, state: DepthwiseState) -> DepthwiseState:
        """``attended``, what the layer's attention gives (T x B x d, or 2d), and the state below to the state above."""
        joined = torch.cat([state.output, attended], dim=-1)  # Eq 1
        input_gate, forget_gate, output_gate = self.gates(joined)  # Eqs 2-4
        hidden = self.hidden_net(joined)  # Eq 6
        cell = state.cell * forget_gate + hidden * input_gate  # Eq 7
        return DepthwiseState(output=cell * output_gate, cell=cell)  # Eq 8
