"""The depth-wise LSTM cell, which connects one layer of a stack to the next in place of a residual connection.

Source: "Rewiring the Transformer with Depth-Wise LSTMs", Section 2.1. Symbols of the equations: ``c`` is the
concatenation of the output so far and the layer's attention, d the model width, H the width of the hidden net. The
cell's recurrence runs over layers, at every position separately. It has no state over time, so decoding caches nothing
of it.

A new cell is a subclass here, of :class:`GatedDepthwiseCell` if it has gates, and a line in ``CELLS``.

On a GPU, Triton kernels for Eqs 2-8 trained no faster than these operations and decoded slower (docs/benchmarks.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_depthwise.modules.activations import ACTIVATIONS
from fairseq_depthwise.modules.dropout import Dropout
from fairseq_depthwise.modules.linear.prepacked import JoinedLinear, join, prepack

#: Epsilon of the layer norms inside the cell.
NORM_EPS = 1e-6

#: The activation of all gates (Eqs 2-4).
gate_activation = torch.sigmoid


class DepthwiseState(NamedTuple):
    """What runs up the stack: ``output`` and ``cell``, each T x B x d."""

    output: Tensor
    cell: Tensor


#: The gates of a cell in the order of its ``gate_names``, T x B x d each.
GateValues = tuple[Tensor, ...]

#: The gate whose bias ``--depthwise-forget-bias`` sets, in a cell that has it.
FORGET_GATE = "forget_gate"

#: The gates of the paper's cell (Eqs 2-4).
LSTM_GATES = ("input_gate", FORGET_GATE, "output_gate")

#: Called in training, without gradients, with the gates of a step and the state above.
CellObserver = Callable[[GateValues, DepthwiseState], None]


class Gates(nn.Module):
    """The gates of a cell, such as the LSTM's three (Eqs 2-4): ``sigmoid(LN(W c))`` each, without linear biases.

    One matrix multiplication computes all. Each gate has its own layer norm with its own statistics over d. Not in the
    paper: other initial values of the forget gate's bias (``forget_bias``) and of the norms' weights (``gain``), and
    ``joint``, one norm over the values of all gates. ``names`` has the cell's gates in order.
    """

    def __init__(
        self,
        *,
        input_dim: int,
        embed_dim: int,
        names: Sequence[str] = LSTM_GATES,
        forget_bias: float = 0.0,
        gain: float = 1.0,
        joint: bool = False,
    ) -> None:
        super().__init__()
        self.embed_dim = embed_dim
        self.count = len(names)
        self.joint = joint
        self.projection = nn.Linear(input_dim, self.count * embed_dim, bias=False)
        self.norm_weight = nn.Parameter(torch.full((self.count, embed_dim), float(gain)))
        self.norm_bias = nn.Parameter(torch.zeros(self.count, embed_dim))
        if FORGET_GATE in names:
            nn.init.constant_(self.norm_bias[names.index(FORGET_GATE)], forget_bias)

    def forward(self, joined: Tensor) -> GateValues:
        """Compute the gates, T x B x d each, from ``joined``, T x B x input_dim."""
        return self.activate(self.projection(joined))

    def activate(self, projected: Tensor) -> GateValues:
        """Compute the gates from their projections, T x B x (count d)."""
        if torch.is_grad_enabled() and not self.joint:
            # Several norms have a shorter backward pass than one norm with a scale and shift after it.
            gates = []
            parts = projected.chunk(self.count, dim=-1)
            for part, weight, bias in zip(parts, self.norm_weight, self.norm_bias, strict=True):
                normalized = F.layer_norm(part, (self.embed_dim,), weight, bias, NORM_EPS)
                gates.append(gate_activation(normalized))
            return tuple(gates)

        together = projected.unflatten(-1, (self.count, self.embed_dim))  # T x B x count x d
        if self.joint:
            shape = (self.count, self.embed_dim)
            normalized = F.layer_norm(together, shape, self.norm_weight, self.norm_bias, NORM_EPS)
        else:
            normalized = F.layer_norm(together, (self.embed_dim,), eps=NORM_EPS)
            normalized = torch.addcmul(self.norm_bias, normalized, self.norm_weight)
        return gate_activation(normalized).unbind(-2)


class HiddenNet(nn.Module):
    """The net that computes the hidden value h, without biases.

    With two layers (Eq 6) it is ``h = W_h2 GLU(LN(W_h1 c))``; with one (Eq 5), where ``hidden_dim`` is None, ``h =
    GELU(LN(W_h c))``.
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
        prepack(self, "first")
        if self.second is not None:
            prepack(self, "second")

    def forward(self, joined: Tensor) -> Tensor:
        """Compute the hidden value h, T x B x d, from ``joined``, T x B x input_dim."""
        return self.finish(self.first(joined))

    def finish(self, projected: Tensor) -> Tensor:
        """Compute h from the first projection, T x B x H."""
        activated = ACTIVATIONS[self.activation].function(self.norm(projected))  # T x B x H, or H / 2 after a GLU
        if self.second is not None:
            activated = self.second(self.activation_dropout(activated))  # T x B x d
        return self.dropout(activated)


class DepthwiseCell(nn.Module):
    """One step up the stack: from the state below a layer and the layer's attention to the state above it.

    Attributes:
        gate_names: the gates of a :class:`GatedDepthwiseCell`; a cell without is built from a hidden net alone.
    """

    gate_names: tuple[str, ...] = ()

    def forward(self, attended: Tensor, state: DepthwiseState) -> DepthwiseState:
        """Compute the state above from the state below and the attention's output (T x B x d, or 2d)."""
        raise NotImplementedError  # abstract: each cell has its own


class GatedDepthwiseCell(DepthwiseCell):
    """A cell that computes gates and a hidden value h from c; a subclass names its gates and combines them with h.

    Args:
        gates: the gates in the order of ``gate_names``; layers that share them are given the same object.
        hidden_net: computes h from c.
        attention_skip: add the attention's output to h; not in the paper.
        observer: called in every training forward.
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
        net = self.hidden_net
        joined = torch.cat([state.output, attended], dim=-1)  # Eq 1: c, T x B x 2d or 3d

        # The projections of gates (T x B x 3d) and hidden net (T x B x H): in decoding one matrix multiplication.
        if self._joined is not None and not torch.is_grad_enabled():
            widths = [self.gates.count * self.gates.embed_dim, net.first.out_features]
            gates_projection, net_projection = self._joined(joined).split_with_sizes(widths, dim=-1)
        else:
            gates_projection = self.gates.projection(joined)
            net_projection = net.first(joined)

        gates = self.gates.activate(gates_projection)  # Eqs 2-4
        hidden = net.finish(net_projection)  # Eqs 5, 6
        if self.attention_skip:
            hidden = hidden + _sum_of_attentions(attended, state)

        above = self.combine(gates, hidden, state)
        if self.observer is not None and self.training:
            # The observer only looks: it must not add to the graph.
            with torch.no_grad():
                self.observer(gates, above)
        return above

    def combine(self, gates: GateValues, hidden: Tensor, state: DepthwiseState) -> DepthwiseState:
        """Compute the state above from the gates, h and the state below, T x B x d each."""
        raise NotImplementedError  # abstract: each cell has its own

    def gate_values(self, attended: Tensor, state: DepthwiseState) -> GateValues:
        """Return the gates that :meth:`forward` computes from the same arguments."""
        return self.gates(torch.cat([state.output, attended], dim=-1))

    def make_generation_fast_(self, **_: Any) -> None:
        """Pack the weights once, before generation (fairseq's hook)."""
        # Gates and hidden net read the same input, so their first matrices are one here.
        self._joined = join(self.gates.projection, self.hidden_net.first)


def _sum_of_attentions(attended: Tensor, state: DepthwiseState) -> Tensor:
    """Return the attention's output, T x B x d; if two are concatenated (T x B x 2d), their sum."""
    width = state.output.size(-1)
    if attended.size(-1) == width:
        return attended
    return attended.unflatten(-1, (-1, width)).sum(-2)


class DepthwiseLSTMCell(GatedDepthwiseCell):
    """The depth-wise LSTM (Eqs 1-8); there is no tanh on the cell state."""

    gate_names = LSTM_GATES

    def combine(self, gates: GateValues, hidden: Tensor, state: DepthwiseState) -> DepthwiseState:
        """Compute the state above from the gates, h and the state below, T x B x d each."""
        input_gate, forget_gate, output_gate = gates
        cell = torch.addcmul(state.cell * forget_gate, hidden, input_gate)  # Eq 7
        return DepthwiseState(output=cell * output_gate, cell=cell)  # Eq 8


class DepthwiseRNNCell(DepthwiseCell):
    """The ablation without gates (Table 2): ``Output_i`` is the hidden net of c; the cell state is passed on unused."""

    def __init__(self, *, hidden_net: HiddenNet) -> None:
        super().__init__()
        self.hidden_net = hidden_net

    def forward(self, attended: Tensor, state: DepthwiseState) -> DepthwiseState:
        """Compute the state above from the state below and the attention's output (T x B x d, or 2d)."""
        joined = torch.cat([state.output, attended], dim=-1)  # Eq 1
        return DepthwiseState(output=self.hidden_net(joined), cell=state.cell)


#: Values of ``--depthwise-cell``. The gates and the hidden net that a cell is built from are those of the options.
CELLS: dict[str, type[DepthwiseCell]] = {"lstm": DepthwiseLSTMCell, "rnn": DepthwiseRNNCell}
