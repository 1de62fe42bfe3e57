"""Encoder and decoder layer of the depth-wise LSTM Transformer: attention alone, connected by the cell.

Source: "Rewiring the Transformer with Depth-Wise LSTMs", Sections 2.2 and 2.3, Figures 2 and 3 (a). There is no
residual connection and no feed-forward sub-layer; the cell takes over both.
"""

from __future__ import annotations

from torch import Tensor, nn

from fairseq_depthwise.modules.attention import IncrementalState, MultiheadAttention
from fairseq_depthwise.modules.depthwise_cell import DepthwiseLSTMCell, DepthwiseState


class DepthwiseEncoderLayer(nn.Module):
    """Self-attention, then the cell (Figure 2).

    Args:
        self_attention: the attention over the sentence.
        cell: connects this layer with the one below.
        input_norm: normalises the attention's input; None in the first layer, whose input is the embedding.
        dropout: dropout of the attention's output.
    """

    def __init__(
        self,
        *,
        self_attention: MultiheadAttention,
        cell: DepthwiseLSTMCell,
        input_norm: nn.LayerNorm | None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.self_attention = self_attention
        self.cell = cell
        self.input_norm = input_norm
        self.dropout = nn.Dropout(dropout)

    def forward(self, state: DepthwiseState, padding: Tensor | None) -> DepthwiseState:
        """State below to state above (T x B x d each); ``padding``: B x T, True at padding."""
        normalised = state.output if self.input_norm is None else self.input_norm(state.output)
        attended, _ = self.self_attention(normalised, normalised, padding=padding)
        return self.cell(self.dropout(attended), state)


class DepthwiseDecoderLayer(nn.Module):
    """Masked self-attention and cross-attention, merged by addition, then the cell (Figure 3 (a)).

    The query of the cross-attention is the self-attention's output plus the layer's input, as in the standard decoder
    layer; that sum is not what goes into the cell.

    Args:
        self_attention: the attention over the target positions so far.
        cross_attention: the attention over the encoder's output.
        cell: connects this layer with the one below.
        input_norm: normalises the self-attention's input; None in the first layer.
        query_norm: normalises the cross-attention's query; None in the first layer.
        dropout: dropout of each attention's output.
    """

    def __init__(
        self,
        *,
        self_attention: MultiheadAttention,
        cross_attention: MultiheadAttention,
        cell: DepthwiseLSTMCell,
        input_norm: nn.LayerNorm | None,
        query_norm: nn.LayerNorm | None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.self_attention = self_attention
        self.cross_attention = cross_attention
        self.cell = cell
        self.input_norm = input_norm
        self.query_norm = query_norm
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        state: DepthwiseState,
        encoder_output: Tensor,
        *,
        encoder_padding: Tensor | None = None,
        self_padding: Tensor | None = None,
        causal: bool = True,
        incremental_state: IncrementalState | None = None,
        need_weights: bool = False,
    ) -> tuple[DepthwiseState, Tensor | None]:
        """State below to state above, and the cross-attention's weights (heads x B x T x S) where asked for.

        Args:
            state: T x B x d each.
            encoder_output: S x B x d.
            encoder_padding: B x S, True at padding.
            self_padding: B x T, True at padding.
            causal: False lets every position see all others (alignment of a finished sentence).
            incremental_state: fairseq's decoding state; T is 1 then.
            need_weights: whether to return weights.
        """
        normalised = state.output if self.input_norm is None else self.input_norm(state.output)
        attended, _ = self.self_attention(
            normalised, normalised, padding=self_padding, causal=causal, incremental_state=incremental_state
        )
        attended = self.dropout(attended)

        query = attended + state.output
        if self.query_norm is not None:
            query = self.query_norm(query)
        crossed, weights = self.cross_attention(
            query,
            encoder_output,
            padding=encoder_padding,
            incremental_state=incremental_state,
            need_weights=need_weights,
        )
        return self.cell(attended + self.dropout(crossed), state), weights
