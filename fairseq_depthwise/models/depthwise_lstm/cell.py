"""The depth-wise LSTM cell: what connects one layer of a stack with the next instead of a residual connection.

Source: "Rewiring the Transformer with Depth-Wise LSTMs", Section 2.1. The equations' symbols in this file:
``c`` is :func:`torch.cat` of the output so far and the layer's attention, d the model width, H the width of the hidden
net. The cell has no state over time: its recurrence runs over layers, at every position by itself, so decoding caches
nothing of it.

The modules' ``forward`` is the readable reference. ``kernels/fused_cell.py`` computes the same faster, from the same
parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_depthwise.models.depthwise_lstm.kernels.fused_cell import choose_kernel, finish_fused, run_fused
from fairseq_depthwise.modules.dropout import Dropout
from fairseq_depthwise.modules.linear.prepacked import JoinedLinear, join, packable, prepack

#: Epsilon of the layer norms inside the cell.
NORM_EPS = 1e-6

#: What may follow the hidden net's norm, functions of :mod:`torch.nn.functional`. The GLU halves the width. Those that
#: ``fused_cell.TRITON_ACTIVATIONS`` lacks are computed without Triton.
HIDDEN_ACTIVATIONS = ("glu", "gelu", "relu")


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

    The three products are one; each gate has its own layer norm with its own statistics over d.

    Args:
        input_dim: width of c (2d, or 3d where a decoder layer concatenates its two attentions).
        embed_dim: d.
        forget_bias: start value of the bias of the forget gate's norm; not in the paper.
        gain: start value of the norms' weights; 1 in the paper.
        joint: normalize the three gates over all 3d values together; not in the paper.
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
        gates = torch.addcmul(self.norm_bias, normalized, self.norm_weight).sigmoid_()
        return gates[..., 0, :], gates[..., 1, :], gates[..., 2, :]


class HiddenNet(nn.Module):
    """The net that computes the new hidden value, without biases.

    Two layers (Eq 6): ``h = W_h2 GLU(LN(W_h1 c))``; one layer (Eq 5): ``h = GELU(LN(W_h c))``.

    Args:
        input_dim: width of c.
        embed_dim: d.
        hidden_dim: H, the width before the GLU halves it; None for one layer.
        activation: a name in ``HIDDEN_ACTIVATIONS``; one layer has nothing to halve, so it takes gelu or relu.
        dropout: dropout of the net's output.
        activation_dropout: dropout after the activation of the first of two layers.
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
        if hidden_dim is None and activation == "glu":
            raise ValueError("a hidden net of one layer cannot have a glu: it would halve the width d")
        if hidden_dim is not None and hidden_dim % 2 and activation == "glu":
            raise ValueError(f"hidden_dim {hidden_dim} is odd; the GLU halves it")
        width = embed_dim if hidden_dim is None else hidden_dim
        self.activation = activation
        self.first = nn.Linear(input_dim, width, bias=False)  # W_h1, or W_h
        self.norm = nn.LayerNorm(width, eps=NORM_EPS)
        self.second: nn.Linear | None = None  # W_h2
        if hidden_dim is not None:
            self.second = nn.Linear(width // 2 if activation == "glu" else width, embed_dim, bias=False)
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
        activated = getattr(F, self.activation)(self.norm(projected))
        if self.second is not None:
            activated = self.second(self.activation_dropout(activated))
        return self.dropout(activated)


class DepthwiseLSTMCell(nn.Module):
    """One step up the stack (Eqs 1, 7, 8); there is no tanh on the cell.

    Args:
        gates: the gates, one object given to every layer that shares them.
        hidden_net: computes h from c.
        attention_skip: add the attention's output to h; not in the paper.
        kernel: how it is computed, one of ``fused_cell.KERNELS``.
        observer: is shown every training forward.
    """

    def __init__(
        self,
        *,
        gates: Gates,
        hidden_net: HiddenNet,
        attention_skip: bool = False,
        kernel: str = "auto",
        observer: CellObserver | None = None,
    ) -> None:
        super().__init__()
        self.gates = gates
        self.hidden_net = hidden_net
        self.attention_skip = attention_skip
        self.kernel = kernel
        self.observer = observer
        self._joined: JoinedLinear | None = None

    def forward(self, attended: Tensor, state: DepthwiseState) -> DepthwiseState:
        """Compute the state above from the state below and the attention's output (T x B x d, or 2d)."""
        joined = torch.cat([state.output, attended], dim=-1)  # Eq 1
        skipped = _sum_of_attentions(attended, state) if self.attention_skip else None
        kernel = choose_kernel(
            self.kernel, joined.device, fusible=self._fusible, gates=self.gates, net=self.hidden_net,
            skip=self.attention_skip,
        )  # fmt: skip
        if self._joined is not None and not torch.is_grad_enabled():
            return self._joined_step(kernel, self._joined(joined), skipped, state)
        gates: GateValues | None = None
        if kernel != "eager":
            above = DepthwiseState(
                *run_fused(kernel, joined, skipped, state.cell, self.gates, self.hidden_net, NORM_EPS)
            )
        else:
            gates = self.gates(joined)  # Eqs 2-4
            above = _update(gates, self.hidden_net(joined), skipped, state)  # Eqs 5-8
        if self.observer is not None and self.training:
            with torch.no_grad():
                self.observer(gates or self.gates(joined), above)
        return above

    def gate_values(self, attended: Tensor, state: DepthwiseState) -> GateValues:
        """Return the gates that :meth:`forward` has for the same arguments, whichever way it computes them."""
        return self.gates(torch.cat([state.output, attended], dim=-1))

    @property
    def _fusible(self) -> bool:
        """Quantized linear layers and quantization noise act in the modules' own calls."""
        net = self.hidden_net
        return packable(self.gates.projection, net.first, *([] if net.second is None else [net.second]))

    def make_generation_fast_(self, **_: Any) -> None:
        """Pack the weights once, before generation (fairseq's hook)."""
        self._joined = join(self.gates.projection, self.hidden_net.first)

    def _joined_step(
        self, kernel: str, projected: Tensor, skipped: Tensor | None, state: DepthwiseState
    ) -> DepthwiseState:
        """Compute the same from what c is projected to (T x B x (3d + H)), at inference."""
        if kernel == "triton":
            return DepthwiseState(*finish_fused(projected, skipped, state.cell, self.gates, self.hidden_net, NORM_EPS))
        width = 3 * self.gates.embed_dim
        gates = self.gates.activate(projected[..., :width])
        return _update(gates, self.hidden_net.finish(projected[..., width:]), skipped, state)


def _sum_of_attentions(attended: Tensor, state: DepthwiseState) -> Tensor:
    """Return the attention's output, T x B x d; of two that are concatenated their sum."""
    width = state.output.size(-1)
    return attended if attended.size(-1) == width else attended.unflatten(-1, (-1, width)).sum(-2)


def _update(gates: GateValues, hidden: Tensor, skipped: Tensor | None, state: DepthwiseState) -> DepthwiseState:
    input_gate, forget_gate, output_gate = gates
    if skipped is not None:
        hidden = hidden + skipped
    cell = torch.addcmul(state.cell * forget_gate, hidden, input_gate)  # Eq 7
    return DepthwiseState(output=cell * output_gate, cell=cell)  # Eq 8


class DepthwiseRNNCell(nn.Module):
    """The ablation without gates (Table 2): ``Output_i`` is the hidden net of c; the cell state is passed on unused."""

    def __init__(self, *, hidden_net: HiddenNet) -> None:
        super().__init__()
        self.hidden_net = hidden_net

    def forward(self, attended: Tensor, state: DepthwiseState) -> DepthwiseState:
        """Compute the state above from the state below and the attention's output (T x B x d, or 2d)."""
        return DepthwiseState(output=self.hidden_net(torch.cat([state.output, attended], dim=-1)), cell=state.cell)
