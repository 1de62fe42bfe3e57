"""Multi-head attention, trained through PyTorch's fused kernel and decoded from cached keys and values."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: Decoding state: per attention its "key" and "value" (B x heads x S x head_dim) and "padding" (B x S or None).
IncrementalState = dict[str, dict[str, Any]]


class MultiheadAttention(nn.Module):
    """Scaled dot-product attention over ``heads`` projections (Vaswani et al. 2017, Section 3.2).

    fairseq's own module cannot be trained without biases, and sends neither cross-attention nor decoding through the
    fused kernel; this one does both. Weights start as ``torch.nn.Linear`` sets them, uniform in
    +-1/sqrt(fan_in), which is what the authors of the depth-wise LSTM used.

    Args:
        embed_dim: width d of queries, keys, values and output.
        heads: number of heads; must divide ``embed_dim``.
        dropout: dropout probability of the attention weights in training.
        bias: whether the four projections have biases.
        attend_encoder: cross-attention. Keys and values come from the encoder, are computed once per sentence while
            decoding, and stay the same for every beam of a sentence.
    """

    def __init__(
        self, *, embed_dim: int, heads: int, dropout: float = 0.0, bias: bool = False, attend_encoder: bool = False
    ) -> None:
        super().__init__()
        if embed_dim % heads:
            raise ValueError(f"embed_dim {embed_dim} is not divisible by heads {heads}")
        self.heads = heads
        self.head_dim = embed_dim // heads
        self.dropout = dropout
        self.attend_encoder = attend_encoder
        self.query_projection = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.key_projection = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.value_projection = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.output_projection = nn.Linear(embed_dim, embed_dim, bias=bias)

    def forward(
        self,
        query: Tensor,
        source: Tensor,
        *,
        padding: Tensor | None = None,
        causal: bool = False,
        incremental_state: IncrementalState | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from every position of ``query`` to the positions of ``source``.

        Args:
            query: T x B x C.
            source: S x B x C; what keys and values are made of. While decoding with ``incremental_state``, the newest
                target position for self-attention (S = T = 1), the whole encoder output for cross-attention.
            padding: B x S, True at padding of ``source``; None where there is none, and always in self-attention with
                ``incremental_state``.
            causal: position t sees positions up to t only.
            incremental_state: fairseq's decoding state; None outside incremental decoding.
            need_weights: also return the attention weights, which the fused kernel does not give.

        Returns:
            T x B x C, and the weights (heads x B x T x S) or None.
        """
        # 1. Project and split into heads: T x B x C -> B x heads x T x head_dim.
        queries = self._split(self.query_projection(query))
        cache = None if incremental_state is None else incremental_state.get(self.cache_name)
        if cache is not None and self.attend_encoder:
            keys, values, padding = cache["key"], cache["value"], cache["padding"]
        else:
            keys = self._split(self.key_projection(source))
            values = self._split(self.value_projection(source))
            if cache is not None:
                keys = torch.cat([cache["key"], keys], dim=2)
                values = torch.cat([cache["value"], values], dim=2)
            if incremental_state is not None:
                incremental_state[self.cache_name] = {"key": keys, "value": values, "padding": padding}

        # 2. Attend.
        if need_weights:
            mask = _additive_mask(queries, keys, padding, causal)
            attended, weights = self._attend_with_weights(queries, keys, values, mask)
        else:
            # Without padding the kernel makes the causal mask itself and skips what it hides; with cached keys, though,
            # its mask would start at the first key.
            kernel_causal = causal and padding is None and queries.size(2) == keys.size(2)
            attended = F.scaled_dot_product_attention(
                queries,
                keys,
                values,
                attn_mask=None if kernel_causal else _additive_mask(queries, keys, padding, causal),
                dropout_p=self.dropout if self.training else 0.0,
                is_causal=kernel_causal,
            )
            weights = None

        # 3. Join the heads: B x heads x T x head_dim -> T x B x C.
        joined = attended.permute(2, 0, 1, 3).reshape(query.size(0), query.size(1), -1)
        return self.output_projection(joined), weights

    @property
    def cache_name(self) -> str:
        """Key of this module's tensors in the decoding state; of the object, so that a copied layer has its own."""
        return f"attention.{id(self)}"

    def _split(self, projected: Tensor) -> Tensor:
        length, batch, _ = projected.shape
        return projected.view(length, batch, self.heads, self.head_dim).permute(1, 2, 0, 3)

    def _attend_with_weights(
        self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        scores = torch.matmul(queries, keys.transpose(2, 3)) * self.head_dim**-0.5
        if mask is not None:
            scores = scores + mask
        weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(scores.dtype)
        attended = torch.matmul(F.dropout(weights, self.dropout, self.training), values)
        return attended, weights.transpose(0, 1)

    def reorder_incremental_state(self, incremental_state: IncrementalState, new_order: Tensor) -> None:
        """Follow the beam search: row b of every cached tensor becomes the old row ``new_order[b]``."""
        cache = incremental_state.get(self.cache_name)
        if cache is None:
            return
        # The beams of a sentence share its encoder output, so only a shrinking batch moves encoder keys.
        if self.attend_encoder and cache["key"].size(0) == new_order.size(0):
            return
        incremental_state[self.cache_name] = {
            name: None if tensor is None else tensor.index_select(0, new_order) for name, tensor in cache.items()
        }


def _additive_mask(queries: Tensor, keys: Tensor, padding: Tensor | None, causal: bool) -> Tensor | None:
    """0 where attention may look, the lowest finite number elsewhere; broadcasts to B x heads x T x S.

    Added to the scores, because boolean masks are slow in several of PyTorch's kernels. A finite number, because a
    row of -inf only, which a sentence padded on the left has, would become NaN.
    """
    lowest = torch.finfo(queries.dtype).min
    length, source_length = queries.size(2), keys.size(2)
    mask = None
    if causal and length > 1:
        # The last query sees all keys, also where keys of earlier positions come from the cache.
        mask = queries.new_full((length, source_length), lowest).triu(source_length - length + 1)
    if padding is not None:
        hidden = torch.zeros_like(padding, dtype=queries.dtype).masked_fill(padding, lowest)[:, None, None, :]
        mask = hidden if mask is None else torch.minimum(mask, hidden)
    return mask
