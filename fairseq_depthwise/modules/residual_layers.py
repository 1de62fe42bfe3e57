"""Pre-norm Transformer layers: attention and feed-forward, each with a residual connection.

Source: Vaswani et al. 2017, Section 3.1, with the layer norm moved to the input of each sub-layer (pre-norm): Wang et
al. 2019; Li et al. 2020, "Shallow-to-Deep Training for Neural Machine Translation", Section 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from fairseq_depthwise.modules.attention import MultiheadAttention
from fairseq_depthwise.modules.dropout import Dropout
from fairseq_depthwise.modules.feed_forward import FeedForward

if TYPE_CHECKING:
    from fairseq_depthwise.modules.decoding.cache import StepCache


class ScaledNorm(nn.LayerNorm):
    """A layer norm whose output is divided by ``sqrt(layer)``; layers count from 1.

    Source: "The Curse of Depth in Large Language Models" (Sun et al. 2025, arXiv 2502.05795), LayerNorm Scaling: the
    variance of what deep pre-norm layers add no longer grows with depth.
    """

    # Read by growth/parameter_map.py: growth with zero-initialized layers preserves the function only if new layers go
    # on top, since the scale of a layer that moves changes. The value is the option that the error names.
    identity_only_on_top_option = "--norm-scaling"

    def __init__(self, embed_dim: int, *, layer: int) -> None:
        super().__init__(embed_dim)
        self.scale = layer**-0.5

    def forward(self, x: Tensor) -> Tensor:
        """Return ``LN(x) / sqrt(layer)``."""
        return super().forward(x) * self.scale


class _ResidualLayer(nn.Module):
    """Sub-layers shared by encoder and decoder layers.

    Encoders pass no ``cross_attention`` and have no such attribute.

    Args:
        norm_scaling_layer: layer number (from 1) for :class:`ScaledNorm`; None for plain layer norms.
    """

    def __init__(
        self,
        *,
        embed_dim: int,
        self_attention: MultiheadAttention,
        cross_attention: MultiheadAttention | None = None,
        feed_forward: FeedForward,
        dropout: float = 0.0,
        norm_scaling_layer: int | None = None,
    ) -> None:
        super().__init__()

        def build_norm() -> nn.LayerNorm:
            if norm_scaling_layer is None:
                return nn.LayerNorm(embed_dim)
            return ScaledNorm(embed_dim, layer=norm_scaling_layer)

        self.self_attention = self_attention
        self.self_attention_norm = build_norm()
        if cross_attention is not None:
            self.cross_attention = cross_attention
            self.cross_attention_norm = build_norm()
        self.feed_forward = feed_forward
        self.feed_forward_norm = build_norm()
        self.dropout = Dropout(dropout)

    def add_self_attention(self, stream: Tensor, **attention_args: Any) -> Tensor:
        """Return ``x + SelfAttention(LN(x))``, T x B x d. Keyword arguments go to ``MultiheadAttention.forward``."""
        normalized = self.self_attention_norm(stream)
        attended, _ = self.self_attention(normalized, normalized, **attention_args)
        return stream + self.dropout(attended)

    def add_feed_forward(self, stream: Tensor) -> Tensor:
        """Return ``x + FeedForward(LN(x))``, T x B x d."""
        return stream + self.dropout(self.feed_forward(self.feed_forward_norm(stream)))


class ResidualEncoderLayer(_ResidualLayer):
    """``s = x + SelfAttention(LN(x))``, then ``s + FeedForward(LN(s))``."""

    #: Last linear layer of each residual branch; when these are all zero, the layer is the identity.
    branch_ends: tuple[str, ...] = ("self_attention.output_projection", "feed_forward.second")

    def forward(
        self,
        stream: Tensor,
        padding: Tensor | None,
        *,
        sublayer: int | None = None,
        blend: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """Compute T x B x d from T x B x d.

        Args:
            padding: B x T, True at padding; None where there is none.
            sublayer: run only this one: 0 self-attention, 1 feed-forward; by default both.
            blend: values to mix with those of self-attention (value residuals), see
                :meth:`~fairseq_depthwise.modules.attention.MultiheadAttention.forward`.
        """
        if sublayer in (None, 0):  # self-attention
            stream = self.add_self_attention(stream, padding=padding, blend=blend)
        if sublayer in (None, 1):  # feed-forward
            stream = self.add_feed_forward(stream)
        return stream


class ResidualDecoderLayer(_ResidualLayer):
    """Masked self-attention, cross-attention and feed-forward, each added to its input."""

    #: Last linear layer of each residual branch, as in :class:`ResidualEncoderLayer`.
    branch_ends = ("self_attention.output_projection", "cross_attention.output_projection", "feed_forward.second")

    def forward(
        self,
        stream: Tensor,
        encoder_output: Tensor,
        *,
        encoder_padding: Tensor | None = None,
        self_padding: Tensor | None = None,
        causal: bool = True,
        cache: StepCache | None = None,
        need_weights: bool = False,
        sublayer: int | None = None,
        blend: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Compute T x B x d from T x B x d.

        Args:
            encoder_output: S x B x d.
            encoder_padding: B x S, True at padding; None where there is none.
            self_padding: B x T, True at padding; None where there is none.
            causal: False lets every position see all others (alignment of a finished sentence).
            cache: keys and values of earlier decoding steps and of the encoder output; with a cache, T = 1.
            need_weights: also return the cross-attention weights.
            sublayer: run only this one: 0 self-attention, 1 cross-attention, 2 feed-forward; by default all three.
            blend: values to mix with those of self-attention (value residuals), see
                :meth:`~fairseq_depthwise.modules.attention.MultiheadAttention.forward`.

        Returns T x B x d, and the cross-attention weights (heads x B x T x S) if ``need_weights``, else None.
        """
        weights = None
        if sublayer in (None, 0):  # self-attention
            stream = self.add_self_attention(stream, padding=self_padding, causal=causal, cache=cache, blend=blend)
        if sublayer in (None, 1):  # cross-attention
            query = self.cross_attention_norm(stream)
            attended, weights = self.cross_attention(
                query, encoder_output, padding=encoder_padding, cache=cache, need_weights=need_weights
            )
            stream = stream + self.dropout(attended)
        if sublayer in (None, 2):  # feed-forward
            stream = self.add_feed_forward(stream)
        return stream, weights
