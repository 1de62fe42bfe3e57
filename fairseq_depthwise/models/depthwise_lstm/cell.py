"""The depth-wise LSTM cell: what connects one layer of a stack with the next instead of a residual connection.

Source: "Rewiring the Transformer with Depth-Wise LSTMs", Section 2.1. The equations' symbols in this file:
``c`` is :func:`torch.cat` of the output so far and the layer's attention, d the model width, H the width of the hidden
net. The cell has no state over time: its recurrence runs over layers, at every position by itself, so decoding caches
nothing of it.

On a GPU, kernels of Triton for Eqs 2-8 trained no faster than these operations and decoded slower (docs/benchmarks.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_depthwise.modules.activations import ACTIVATIONS
from fairseq_depthwise.modules.dropout import Dropout
from fairseq_depthwise.modules.linear.prepacked import JoinedLinear, join, prepack

#: Epsilon of the layer norms inside the cell.
NORM_EPS = 1e-6


class DepthwiseState(NamedTuple):
    """What runs up the stack: ``output`` and ``cell``, each T x B x d."""

    output: Tensor
    cell: Tensor


#: Input, forget and output gate, T x B x d each.
GateValues = tuple[Tensor, Tensor, Tensor]

#: Called in training, without gradients, with the gates of a step and the state above.
CellObserver = Callable[[GateValues, DepthwiseState], None]


class Gates(nn.Module):
    """Input, forget and output gate (Eqs 2-4): ``sigmoid(LN(W c))`` each, without linear biases.

    The three products are one; each gate has its own layer norm with its own statistics over d. Not in the paper: start
    values of the forget gate's bias and the norms' weights, and ``joint``, one norm over all 3d values.
    """

    def __init__(
        self, *, input_dim: int, embed_dim: int, forget_bias: float = 0.0, gain: float = 1.0, joint: bool = False
    ) -> None:
        super().__init__()
        self.embed_dim = embed_dim
        self.joint = joint
        self.projection = nn.Linear(input_dim, 3 * embed_dim, bias=False)
        self.norm_weight = nn.Parameter(torch.full((3, embed_dim), float(gain)))
        self.norm_bias = nn.Parameter(torch.zeros(3, embed_dim))
        nn.init.constant_(self.norm_bias[1], forget_bias)

    def forward(self, joined: Tensor) -> GateValues:
        """Compute (input gate, forget gate, output gate), T x B x d each, from ``joined``, T x B x input_dim."""
        return self.activate(self.projection(joined))

    def activate(self, projected: Tensor) -> GateValues:
        """Compute the gates from their projections, T x B x 3d."""
        if self.joint:
            all_three = projected.unflatten(-1, (3, self.embed_dim))
            normalized = F.layer_norm(all_three, (3, self.embed_dim), self.norm_weight, self.norm_bias, NORM_EPS)
            input_gate, forget_gate, output_gate = normalized.sigmoid().unbind(-2)
            return input_gate, forget_gate, output_gate
        if torch.is_grad_enabled():
            # Three norms have a shorter backward pass than one and its scale and shift.
            parts = zip(projected.chunk(3, dim=-1), self.norm_weight, self.norm_bias, strict=True)
            logits = [F.layer_norm(part, (self.embed_dim,), weight, bias, NORM_EPS) for part, weight, bias in parts]
            return torch.sigmoid(logits[0]), torch.sigmoid(logits[1]), torch.sigmoid(logits[2])
        normalized = F.layer_norm(projected.unflatten(-1, (3, self.embed_dim)), (self.embed_dim,), eps=NORM_EPS)
        gates = torch.addcmul(self.norm_bias, normalized, self.norm_weight).sigmoid()
        return gates[..., 0, :], gates[..., 1, :], gates[..., 2, :]


class HiddenNet(nn.Module):
    """The net that computes the new hidden value, without biases.

    Two layers (Eq 6): ``h = W_h2 GLU(LN(W_h1 c))``; one layer (Eq 5), without ``hidden_dim``: ``h = GELU(LN(W_h c))``.
    """

    def __init__(
        self,
        *,
        input_dim: int,
        embed_dim: int,
        hidden_dim: int | None,
        activation: str = "glu",
        dropout: float = 0.0,
        activation_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        width = embed_dim if hidden_dim is None else hidden_dim
        self.activation = activation
        self.first = nn.Linear(input_dim, width, bias=False)  # W_h1, or W_h
        self.norm = nn.LayerNorm(width, eps=NORM_EPS)
        self.second: nn.Linear | None = None  # W_h2
        if hidden_dim is not None:
            self.second = nn.Linear(ACTIVATIONS[activation].width(width), embed_dim, bias=False)
        self.dropout = Dropout(dropout)
        self.activation_dropout = Dropout(activation_dropout)

    def make_generation_fast_(self, **_: Any) -> None:
        """Pack the weights once, before generation (fairseq's hook)."""
        prepack(self, "first", *([] if self.second is None else ["second"]))

    def forward(self, joined: Tensor) -> Tensor:
        """Compute the hidden value h, T x B x d, from ``joined``, T x B x input_dim."""
        return self.finish(self.first(joined))

    def finish(self, projected: Tensor) -> Tensor:
        """Compute h from the first projection, T x B x H."""
        activated = ACTIVATIONS[self.activation].function(self.norm(projected))
        if self.second is not None:
            activated = self.second(self.activation_dropout(activated))
        return self.dropout(activated)


class DepthwiseLSTMCell(nn.Module):
    """One step up the stack (Eqs 1, 7, 8); there is no tanh on the cell.

    Args:
        gates: the gates, one object given to every layer that shares them.
        hidden_net: computes h from c.
        attention_skip: add the attention's output to h; not in the paper.
        observer: is shown every training forward.
    """

    def __init__(
        self,
        *,
        gates: Gates,
        hidden_net: HiddenNet,
        attention_skip: bool = False,
        observer: CellObserver | None = None,
    ) -> None:
        super().__init__()
        self.gates = gates
        self.hidden_net = hidden_net
        self.attention_skip = attention_skip
        self.observer = observer
        self._joined: JoinedLinear | None = None

    def forward(self, attended: Tensor, state: DepthwiseState) -> DepthwiseState:
        """Compute the state above from the state below and the attention's output (T x B x d, or 2d)."""
        joined = torch.cat([state.output, attended], dim=-1)  # Eq 1
        net = self.hidden_net
        if self._joined is not None and not torch.is_grad_enabled():
            widths = [3 * self.gates.embed_dim, net.first.out_features]
            for_gates, for_hidden = self._joined(joined).split_with_sizes(widths, dim=-1)
        else:
            for_gates, for_hidden = self.gates.projection(joined), net.first(joined)
        gates = self.gates.activate(for_gates)  # Eqs 2-4
        hidden = net.finish(for_hidden)  # Eqs 5, 6
        if self.attention_skip:
            hidden = hidden + _sum_of_attentions(attended, state)
        cell = torch.addcmul(state.cell * gates[1], hidden, gates[0])  # Eq 7
        above = DepthwiseState(output=cell * gates[2], cell=cell)  # Eq 8
        if self.observer is not None and self.training:
            with torch.no_grad():
                self.observer(gates, above)
        return above

    #: Names of the gates that :meth:`gate_values` returns, for analyses.
    gate_names = ("input_gate", "forget_gate", "output_gate")

    def gate_values(self, attended: Tensor, state: DepthwiseState) -> GateValues:
        """Return the gates that :meth:`forward` has for the same arguments."""
        return self.gates(torch.cat([state.output, attended], dim=-1))

    def make_generation_fast_(self, **_: Any) -> None:
        """Pack the weights once, before generation (fairseq's hook)."""
        self._joined = join(self.gates.projection, self.hidden_net.first)


def _sum_of_attentions(attended: Tensor, state: DepthwiseState) -> Tensor:
    """Return the attention's output, T x B x d; of two that are concatenated their sum."""
    width = state.output.size(-1)
    return attended if attended.size(-1) == width else attended.unflatten(-1, (-1, width)).sum(-2)


class DepthwiseRNNCell(nn.Module):
    """The ablation without gates (Table 2): ``Output_i`` is the hidden net of c; the cell state is passed on unused."""

    def __init__(self, *, hidden_net: HiddenNet) -> None:
        super().__init__()
        self.hidden_net = hidden_net

    def forward(self, attended: Tensor, state: DepthwiseState) -> DepthwiseState:
        """Compute the state above from the state below and the attention's output (T x B x d, or 2d)."""
        return DepthwiseState(output=self.hidden_net(torch.cat([state.output, attended], dim=-1)), cell=state.cell)
