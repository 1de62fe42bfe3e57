"""Pre-norm Transformer layers: attention and feed-forward, each with a residual connection.

Source: Vaswani et al. 2017, Section 3.1, with the layer norm at the input of each sub-layer (Wang et al. 2019;
"Shallow-to-Deep Training for Neural Machine Translation", Section 2).
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
    """A layer norm divided by ``sqrt(layer)``, with layers counted from 1.

    Source: "The Curse of Depth in Large Language Models" (Sun et al. 2025, arXiv 2502.05795), LayerNorm Scaling: the
    variance of what deep pre-norm layers add no longer grows with depth.
    """

    # A layer that moves when the stack grows is scaled for its new place.
    identity_on_top = "--norm-scaling"

    def __init__(self, embed_dim: int, *, layer: int) -> None:
        super().__init__(embed_dim)
        self.scale = layer**-0.5

    def forward(self, values: Tensor) -> Tensor:
        """Compute ``LN(x) / sqrt(layer)``."""
        return super().forward(values) * self.scale


class _ResidualLayer(nn.Module):
    """The parts of a layer; cross-attention is in decoders only.

    Args:
        scaled_for: the number of the layer, counted from 1, by which its norms are scaled; None for ordinary norms.
    """

    def __init__(
        self,
        *,
        embed_dim: int,
        self_attention: MultiheadAttention,
        cross_attention: MultiheadAttention | None = None,
        feed_forward: FeedForward,
        dropout: float = 0.0,
        scaled_for: int | None = None,
    ) -> None:
        super().__init__()

        def norm() -> nn.LayerNorm:
            return nn.LayerNorm(embed_dim) if scaled_for is None else ScaledNorm(embed_dim, layer=scaled_for)

        self.self_attention = self_attention
        self.self_attention_norm = norm()
        if cross_attention is not None:
            self.cross_attention = cross_attention
            self.cross_attention_norm = norm()
        self.feed_forward = feed_forward
        self.feed_forward_norm = norm()
        self.dropout = Dropout(dropout)

    def attend(self, stream: Tensor, **options: Any) -> Tensor:
        """Compute ``x + SelfAttention(LN(x))``, T x B x d; ``options``: those of the attention."""
        normalized = self.self_attention_norm(stream)
        attended, _ = self.self_attention(normalized, normalized, **options)
        return stream + self.dropout(attended)

    def transform(self, stream: Tensor) -> Tensor:
        """Compute ``x + FeedForward(LN(x))``, T x B x d."""
        return stream + self.dropout(self.feed_forward(self.feed_forward_norm(stream)))


class ResidualEncoderLayer(_ResidualLayer):
    """``s = x + SelfAttention(LN(x))``, then ``s + FeedForward(LN(s))``."""

    #: The linear layers that end the sub-layers: with all of them 0 the layer passes on what it reads.
    branch_ends: tuple[str, ...] = ("self_attention.output_projection", "feed_forward.second")

    def forward(self, stream: Tensor, padding: Tensor | None, *, only: int | None = None, **blend: Any) -> Tensor:
        """Compute T x B x d from T x B x d; ``padding``: B x T; ``only`` and ``blend``: as in the decoder."""
        if only in (None, 0):
            stream = self.attend(stream, padding=padding, **blend)
        if only in (None, 1):
            stream = self.transform(stream)
        return stream


class ResidualDecoderLayer(_ResidualLayer):
    """Masked self-attention, cross-attention and feed-forward, each added to its input."""

    #: As in :class:`ResidualEncoderLayer`.
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
        only: int | None = None,
        **blend: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """Compute T x B x d from T x B x d, and with ``need_weights`` the cross-attention's (heads x B x T x S).

        Args:
            encoder_output: S x B x d, with ``encoder_padding`` (B x S, True at padding).
            self_padding: B x T, True at padding.
            causal: False lets every position see all others (alignment of a finished sentence).
            cache: in a step of a beam search, the keys and values of earlier steps and of the encoder's output; T is 1
                then.
            only: compute a single sub-layer, counted from 0; by default all.
            blend: the argument of self-attention, see
                :class:`~fairseq_depthwise.modules.attention.MultiheadAttention`.
        """
        weights = None
        if only in (None, 0):
            stream = self.attend(stream, padding=self_padding, causal=causal, cache=cache, **blend)
        if only in (None, 1):
            query = self.cross_attention_norm(stream)
            crossed, weights = self.cross_attention(
                query, encoder_output, padding=encoder_padding, cache=cache, need_weights=need_weights
            )
            stream = stream + self.dropout(crossed)
        if only in (None, 2):
            stream = self.transform(stream)
        return stream, weights
