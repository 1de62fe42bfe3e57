"""Multi-head attention, trained through PyTorch's fused kernel and decoded from cached keys and values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_depthwise.modules.decoding.cache import KeysValues, StepCache, additive_mask
from fairseq_depthwise.modules.dropout import Dropout
from fairseq_depthwise.modules.linear.prepacked import JoinedLinear, join, prepack
from fairseq_depthwise.modules.relative_positions import RelativePositions


class MultiheadAttention(nn.Module):
    """Scaled dot-product attention over ``heads`` projections (Vaswani et al. 2017, Section 3.2).

    fairseq's own module cannot be trained without biases, and sends neither cross-attention nor decoding through the
    fused kernel; this one does both. Weights start as ``torch.nn.Linear`` sets them, uniform in
    +-1/sqrt(fan_in), which is what the authors of the depth-wise LSTM used. With ``attend_encoder`` keys and values
    come from the encoder; otherwise there may be tables of relative positions.
    """

    def __init__(
        self,
        *,
        embed_dim: int,
        heads: int,
        dropout: float = 0.0,
        bias: bool = False,
        attend_encoder: bool = False,
        relative_positions: RelativePositions | None = None,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.head_dim = embed_dim // heads
        self.dropout = Dropout(dropout)
        self.attend_encoder = attend_encoder
        self.query_projection = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.key_projection = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.value_projection = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.output_projection = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.relative_positions = relative_positions
        self._joined: JoinedLinear | None = None

    def forward(
        self,
        query: Tensor,
        source: Tensor,
        *,
        padding: Tensor | None = None,
        causal: bool = False,
        cache: StepCache | None = None,
        need_weights: bool = False,
        blend: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from every position of ``query`` (T x B x C) to those of ``source`` (S x B x C).

        Args:
            query: of self-attention the same as ``source``.
            padding: B x S, True at padding of ``source``; None where there is none.
            causal: position t sees positions up to t only.
            cache: what the earlier steps of a beam search left, in place of source, padding and causal: :meth:`step`.
            need_weights: also return the attention weights, which the fused kernel does not give.
            blend: for self-attention, other values (S x B x C), and two weights: theirs, and that of the own values.

        Returns T x B x C, and the weights (heads x B x T x S) or None.
        """
        if cache is not None:
            return self.step(query, cache, need_weights, blend)

        # 1. Project and split into heads: T x B x C -> B x heads x T x head_dim.
        if self.attend_encoder:
            queries = self._split(self.query_projection(query))
            keys, values = self.encoder_keys(source)
        else:
            queries, keys, values = (self._split(part) for part in self._project_all(source, blend))

        # 2. Attend. Without padding the kernel makes the causal mask itself and skips what it hides.
        tables = self.relative_positions
        distances = None if tables is None else tables.within(source.size(0), source.device)
        kernel_causal = causal and padding is None and distances is None and not need_weights
        attended, weights = attend(
            queries,
            (KeysValues(keys, values),),
            mask=None if kernel_causal else attention_mask(queries, keys, padding, causal),
            dropout=self.dropout,
            distances=distances,
            kernel_causal=kernel_causal,
            need_weights=need_weights,
        )

        # 3. Join the heads: B x heads x T x head_dim -> T x B x C.
        joined = attended.permute(2, 0, 1, 3).reshape(query.size(0), query.size(1), -1)
        return self.output_projection(joined), None if weights is None else weights.transpose(0, 1)

    def step(
        self,
        query: Tensor,
        cache: StepCache,
        need_weights: bool = False,
        blend: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from the newest target position of each hypothesis, 1 x N x C, to those that ``cache`` has.

        Returns 1 x N x C, and the weights (heads x N x 1 x S) or None; other arguments as in :meth:`forward`.
        """
        count, distances = query.size(1), None
        if self.attend_encoder:
            queries = cache.group(self.query_projection(query), self.heads)
            parts: Sequence[KeysValues] = (cache.encoder(self, self.encoder_keys),)
            mask = cache.source_mask
        else:
            queries, *newest = (cache.group(part, self.heads) for part in self._project_all(query, blend))
            parts = cache.append(self, KeysValues(*newest))
            mask = cache.ancestor_mask
            if (tables := self.relative_positions) is not None:
                # Of the newest position of each beam and every key, k x keys.
                rows = cache.shared(
                    ("relative positions", tables.max_distance),
                    lambda: tables.rows(cache.newest, cache.positions).expand(cache.beams, cache.positions.size(0)),
                )
                distances = tables, rows
        attended, weights = attend(
            queries,
            parts,
            mask=mask,
            dropout=self.dropout,
            distances=distances,
            products=cache.products,
            need_weights=need_weights,
        )
        # B x heads x k x head_dim -> 1 x N x C
        joined = attended.transpose(1, 2).reshape(1, count, -1).to(query.dtype)
        if weights is not None:
            weights = weights.transpose(0, 1).reshape(self.heads, count, 1, weights.size(-1))
        return self.output_projection(joined), weights

    # --- projections ------------------------------------------------------------------------------------------------

    def make_generation_fast_(self, **_: Any) -> None:
        """Pack the weights once, before generation (fairseq's hook)."""
        prepack(self, "output_projection")
        if self.attend_encoder:
            prepack(self, "query_projection")
        else:
            self._joined = join(self.query_projection, self.key_projection, self.value_projection)

    def values_of(self, source: Tensor) -> Tensor:
        """Return the values of self-attention before they are split into heads, T x B x C."""
        return self.value_projection(source) if self._joined is None else self._joined(source).chunk(3, dim=-1)[2]

    def _project_all(self, source: Tensor, blend: tuple[Tensor, Tensor] | None) -> tuple[Tensor, ...]:
        """Return queries, keys and values of self-attention, T x B x C each."""
        if self._joined is None:
            queries, keys, values = (
                project(source) for project in (self.query_projection, self.key_projection, self.value_projection)
            )
        else:
            queries, keys, values = self._joined(source).chunk(3, dim=-1)
        if blend is not None:
            others, weights = blend
            values = weights[0] * others + weights[1] * values
        return queries, keys, values

    def encoder_keys(self, source: Tensor) -> KeysValues:
        """Return keys and values of the encoder's output (S x B x C), B x heads x S x head_dim each."""
        return KeysValues(self._split(self.key_projection(source)), self._split(self.value_projection(source)))

    def _split(self, projected: Tensor) -> Tensor:
        """Split T x B x C into B x heads x T x head_dim."""
        return projected.unflatten(-1, (self.heads, self.head_dim)).permute(1, 2, 0, 3)


def attend(
    queries: Tensor,
    parts: Sequence[KeysValues],
    *,
    mask: Tensor | None,
    dropout: Dropout,
    distances: tuple[RelativePositions, Tensor] | None = None,
    kernel_causal: bool = False,
    products: bool = False,
    need_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Return the sums of values, B x heads x T x head_dim, and the weights (B x heads x T x S) where wanted.

    Args:
        queries: B x heads x T x head_dim.
        parts: keys and values, in parts along the S positions; more than one go through plain products.
        mask: added to the scores; broadcasts to B x heads x T x S.
        distances: tables of relative positions, and their row for each pair of positions, T x S.
        kernel_causal: let the fused kernel make the causal mask; only without ``mask`` and ``distances``.
        products: compute matrix multiplications instead of the fused kernel; not together with ``kernel_causal``.
    """
    on_cpu = queries.device.type == "cpu"
    # In a traced graph they are for its compiler to fuse; other programs have no such kernel.
    products = products or need_weights or len(parts) > 1 or torch.compiler.is_compiling()
    if distances is not None:
        tables, rows = distances
        scores = tables.key_scores(queries, rows)
        mask = scores if mask is None else scores + mask
        # A mask with gradients makes PyTorch go through products, too, with dropout that is slow on a CPU.
        products = products or tables.value_term or (on_cpu and queries.requires_grad)
    if products:
        attended, weights = _attend_with_weights(queries, parts, mask, dropout, distances)
        return attended, weights if need_weights else None
    dtype = queries.dtype
    ((keys, values),) = parts
    if dtype == torch.bfloat16 and on_cpu and queries.requires_grad:
        # The backward pass of PyTorch's CPU kernel takes several times as long in bfloat16 as in float32.
        queries, keys, values = queries.float(), keys.float(), values.float()
        mask = None if mask is None else mask.float()
    attended = F.scaled_dot_product_attention(
        queries,
        keys,
        values,
        attn_mask=mask,
        dropout_p=dropout.probability if dropout.active else 0.0,
        is_causal=kernel_causal,
    )
    return attended.to(dtype), None


def _attend_with_weights(
    queries: Tensor,
    parts: Sequence[KeysValues],
    mask: Tensor | None,
    dropout: Dropout,
    distances: tuple[RelativePositions, Tensor] | None,
) -> tuple[Tensor, Tensor]:
    products = [torch.matmul(queries, part.keys.transpose(2, 3)) for part in parts]
    scores = (torch.cat(products, dim=3) if len(parts) > 1 else products[0]) * queries.size(-1) ** -0.5
    if mask is not None:
        scores = scores + mask
    precise = torch.promote_types(scores.dtype, torch.float32)
    weights = torch.softmax(scores, dim=-1, dtype=precise).to(scores.dtype)
    dropped = dropout(weights)
    shares = dropped.split([part.keys.size(2) for part in parts], dim=3) if len(parts) > 1 else [dropped]
    attended = torch.matmul(shares[0], parts[0].values)
    for share, part in zip(shares[1:], parts[1:], strict=True):
        attended = attended + torch.matmul(share, part.values)
    if distances is not None and distances[0].value_term:
        attended = attended + distances[0].value_sums(dropped, distances[1])
    return attended, weights


def attention_mask(queries: Tensor, keys: Tensor, padding: Tensor | None, causal: bool) -> Tensor | None:
    """Return an additive mask that broadcasts to B x heads x T x S; None where everything may be seen."""
    length, source_length = queries.size(2), keys.size(2)
    mask = None
    if causal and length > 1:
        future = torch.ones(length, source_length, dtype=torch.bool, device=queries.device).triu(1)
        mask = additive_mask(future, queries.dtype)
    if padding is not None:
        hidden = additive_mask(padding, queries.dtype)[:, None, None, :]
        mask = hidden if mask is None else torch.minimum(mask, hidden)
    return mask
