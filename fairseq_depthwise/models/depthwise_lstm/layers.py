"""Encoder and decoder layers of the depth-wise LSTM Transformer: attention alone, connected by the cell.

Source: "Rewiring the Transformer with Depth-Wise LSTMs", Sections 2.2 and 2.3, Figures 2 and 3. There is no residual
connection and no feed-forward sub-layer; the cell takes over both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from fairseq_depthwise.models.depthwise_lstm.cell import DepthwiseCell, DepthwiseState
from fairseq_depthwise.modules.attention import MultiheadAttention
from fairseq_depthwise.modules.dropout import Dropout
from fairseq_depthwise.modules.stack import Connection

if TYPE_CHECKING:
    from fairseq_depthwise.modules.decoding.cache import StepCache


class DepthwiseEncoderLayer(nn.Module):
    """Self-attention, then the cell (Figure 2); the first layer, which reads the embedding, has no input norm."""

    def __init__(
        self,
        *,
        self_attention: MultiheadAttention,
        cell: DepthwiseCell,
        input_norm: nn.LayerNorm | None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.self_attention = self_attention
        self.cell = cell
        self.input_norm = input_norm
        self.dropout = Dropout(dropout)

    def forward(self, state: DepthwiseState, padding: Tensor | None) -> DepthwiseState:
        """Compute the state above from the state below (T x B x d each); ``padding``: B x T, True at padding."""
        # Only what the attention reads is normalized; the cell reads the state as it is.
        normalized = state.output if self.input_norm is None else self.input_norm(state.output)
        attended, _ = self.self_attention(normalized, normalized, padding=padding)
        return self.cell(self.dropout(attended), state)


class DecoderMerge(NamedTuple):
    """How a decoder layer's two attentions reach its last cell.

    Attributes:
        width: width of the merged attentions, in multiples of d.
        merge: self-attention's and cross-attention's output (T x B x d each) -> T x B x (width d).
        two_cells: whether the self-attention's output first goes through a cell of its own (Figure 3 (b)).
    """

    width: int
    merge: Callable[[Tensor, Tensor], Tensor]
    two_cells: bool = False


#: Values of ``--decoder-merge``.
DECODER_MERGES = {
    "add": DecoderMerge(1, lambda attended, cross_attended: attended + cross_attended),
    "concat": DecoderMerge(2, lambda attended, cross_attended: torch.cat([attended, cross_attended], dim=-1)),
    "two-cells": DecoderMerge(1, lambda attended, cross_attended: cross_attended, two_cells=True),
}


class DepthwiseDecoderLayer(nn.Module):
    """Masked self-attention and cross-attention, and one cell (Figure 3 (a)) or two (Figure 3 (b)).

    With one cell, the query of the cross-attention is the self-attention's output plus the layer's input, as in the
    standard decoder layer; the cell does not read that sum. With two, the first cell reads the self-attention's output,
    its own output is the query, and the second cell reads the cross-attention's output; the cell state runs through
    both. The first layer has no norms.
    """

    def __init__(
        self,
        *,
        self_attention: MultiheadAttention,
        cross_attention: MultiheadAttention,
        cell: DepthwiseCell,
        merge: DecoderMerge,
        middle_cell: DepthwiseCell | None = None,
        input_norm: nn.LayerNorm | None,
        query_norm: nn.LayerNorm | None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.self_attention = self_attention
        self.cross_attention = cross_attention
        self.cell = cell
        self.middle_cell = middle_cell
        self.input_norm = input_norm
        self.query_norm = query_norm
        self.merge = merge
        self.dropout = Dropout(dropout)

    def forward(
        self,
        state: DepthwiseState,
        encoder_output: Tensor,
        *,
        encoder_padding: Tensor | None = None,
        self_padding: Tensor | None = None,
        causal: bool = True,
        cache: StepCache | None = None,
        need_weights: bool = False,
    ) -> tuple[DepthwiseState, Tensor | None]:
        """Compute the state above from the state below (T x B x d each), and the cross-attention's weights or None.

        The arguments are those of :class:`~fairseq_depthwise.modules.residual_layers.ResidualDecoderLayer`.
        """
        # 1. Self-attention, T x B x d.
        normalized = state.output if self.input_norm is None else self.input_norm(state.output)
        attended, _ = self.self_attention(normalized, normalized, padding=self_padding, causal=causal, cache=cache)
        attended = self.dropout(attended)

        # 2. Cross-attention, T x B x d. A middle cell takes the self-attention into the state, which is then the query.
        if self.middle_cell is None:
            query = attended + state.output
        else:
            state = self.middle_cell(attended, state)
            query = state.output
        if self.query_norm is not None:
            query = self.query_norm(query)
        cross_attended, weights = self.cross_attention(
            query, encoder_output, padding=encoder_padding, cache=cache, need_weights=need_weights
        )
        cross_attended = self.dropout(cross_attended)

        # 3. The cell, which reads both attentions as they are merged: T x B x d, or T x B x 2d.
        return self.cell(self.merge.merge(attended, cross_attended), state), weights


class DepthwiseConnection(Connection):
    """The depth-wise LSTM's ends of the stack: ``Out_0 = Cell_0 =`` the embedding; a layer norm on top."""

    def initial_state(self, embedded: Tensor) -> DepthwiseState:
        return DepthwiseState(output=embedded, cell=embedded)

    def representation(self, state: DepthwiseState) -> Tensor:
        return state.output
