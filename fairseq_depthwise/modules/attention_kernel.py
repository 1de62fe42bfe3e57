"""Scaled dot-product attention with heads split: PyTorch's fused kernel where it can do it, products elsewhere."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_depthwise.modules.decoding.cache import additive_mask
from fairseq_depthwise.modules.dropout import Dropout
from fairseq_depthwise.modules.relative_positions import RelativePositions


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    mask: Tensor | None,
    dropout: Dropout,
    relative_positions: RelativePositions | None = None,
    rows: Tensor | None = None,
    kernel_causal: bool = False,
    products: bool = False,
    need_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """The sums of values, B x heads x T x head_dim, and the weights (B x heads x T x S) where wanted.

    Args:
        queries: B x heads x T x head_dim.
        keys: B x heads x S x head_dim.
        values: B x heads x S x head_dim.
        mask: added to the scores; broadcasts to B x heads x T x S.
        dropout: of the weights.
        relative_positions: the tables of relative positions.
        rows: their rows for each pair of positions, T x S; None where there are no tables.
        kernel_causal: let the fused kernel make the causal mask; only without ``mask`` and ``rows``.
        products: go through plain products in any case; not together with ``kernel_causal``.
        need_weights: the weights are wanted.
    """
    on_cpu = queries.device.type == "cpu"
    products = products or need_weights
    if relative_positions is not None and rows is not None:
        scores = relative_positions.key_scores(queries, rows)
        mask = scores if mask is None else scores + mask
        # A mask with gradients makes PyTorch go through products, too, with dropout that is slow on a CPU.
        products = products or relative_positions.value_term or (on_cpu and queries.requires_grad)
    if products:
        attended, weights = _attend_with_weights(queries, keys, values, mask, dropout, relative_positions, rows)
        return attended, weights if need_weights else None
    dtype = queries.dtype
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
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    dropout: Dropout,
    relative_positions: RelativePositions | None,
    rows: Tensor | None,
) -> tuple[Tensor, Tensor]:
    scores = torch.matmul(queries, keys.transpose(2, 3)) * queries.size(-1) ** -0.5
    if mask is not None:
        scores = scores + mask
    precise = torch.promote_types(scores.dtype, torch.float32)
    weights = torch.softmax(scores, dim=-1, dtype=precise).to(scores.dtype)
    dropped = dropout(weights)
    attended = torch.matmul(dropped, values)
    if relative_positions is not None and rows is not None and relative_positions.value_term:
        attended = attended + relative_positions.value_sums(dropped, rows)
    return attended, weights


def hiding_mask(queries: Tensor, keys: Tensor, padding: Tensor | None, causal: bool) -> Tensor | None:
    """Additive mask that broadcasts to B x heads x T x S; None where everything may be seen."""
    length, source_length = queries.size(2), keys.size(2)
    mask = None
    if causal and length > 1:
        future = torch.ones(length, source_length, dtype=torch.bool, device=queries.device).triu(1)
        mask = additive_mask(future, queries.dtype)
    if padding is not None:
        hidden = additive_mask(padding, queries.dtype)[:, None, None, :]
        mask = hidden if mask is None else torch.minimum(mask, hidden)
    return mask
