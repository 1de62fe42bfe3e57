"""Multi-head attention, trained through PyTorch's fused kernel and decoded from cached keys and values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_depthwise.modules.dropout import Dropout
from fairseq_depthwise.modules.linear.prepacked import JoinedLinear, join, prepack
from fairseq_depthwise.modules.relative_positions import RelativePositions

if TYPE_CHECKING:
    # A decoder hands the cache in: training needs nothing of decoding.
    from fairseq_depthwise.modules.decoding.cache import StepCache


class KeysValues(NamedTuple):
    """Keys and values with heads split, B x heads x positions x head_dim each."""

    keys: Tensor
    values: Tensor


class MultiheadAttention(nn.Module):
    """Scaled dot-product attention over ``heads`` projections (Vaswani et al. 2017, Section 3.2).

    fairseq's own module cannot be trained without biases, and uses the fused kernel neither for cross-attention nor in
    decoding; this one does both. Weights are initialized as in ``torch.nn.Linear``, uniform in +-1/sqrt(fan_in), which
    is what the authors of the depth-wise LSTM used.

    With ``attend_encoder`` keys and values come from the encoder's output (cross-attention). Only self-attention can
    have tables of relative positions.
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
        # Before generation the projections to queries, keys and values become one.
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
            query: in self-attention the same tensor as ``source``.
            padding: B x S, True at padding of ``source``; None where there is none.
            causal: position t sees positions up to t only.
            cache: keys and values of earlier decoding steps. It replaces source, padding and causal; see :meth:`step`.
            need_weights: also return the attention weights, which the fused kernel does not compute.
            blend: other values (S x B x C) and two weights: self-attention then uses ``weights[0] * other values +
                weights[1] * its values`` (value residuals).

        Returns T x B x C, and the weights (heads x B x T x S) or None.
        """
        if cache is not None:
            return self.step(query, cache, need_weights, blend)

        # 1. Project and split into heads: T x B x C -> B x heads x T x head_dim.
        if self.attend_encoder:
            queries = self._split_heads(self.query_projection(query))
            keys, values = self.project_encoder_output(source)
        else:
            queries, keys, values = (self._split_heads(part) for part in self._project_self_attention(source, blend))

        # 2. Attend. Without padding, the kernel creates the causal mask itself and skips the positions that it hides.
        tables = self.relative_positions
        distances = None if tables is None else tables.compute_distances(source.size(0), source.device)
        kernel_causal = causal and padding is None and distances is None and not need_weights
        attended, weights = attend(
            queries,
            (KeysValues(keys, values),),
            mask=None if kernel_causal else make_attention_mask(queries, keys, padding, causal),
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
        """Attend from the newest target position of each hypothesis, 1 x N x C, to the positions in ``cache``.

        Returns 1 x N x C, and the weights (heads x N x 1 x S) or None; other arguments as in :meth:`forward`.
        """
        # 1. Project. The k beams of a sentence become its positions: 1 x N x C -> B x heads x k x head_dim.
        count = query.size(1)
        distances = None
        if self.attend_encoder:
            queries = cache.group_beams(self.query_projection(query), self.heads)
            parts: Sequence[KeysValues] = (cache.encoder(self, self.project_encoder_output),)
            mask = cache.source_mask
        else:
            queries, keys, values = (
                cache.group_beams(part, self.heads) for part in self._project_self_attention(query, blend)
            )
            parts = cache.append(self, KeysValues(keys, values))
            mask = cache.ancestor_mask
            tables = self.relative_positions
            if tables is not None:
                # Rows of the tables for the newest position of each beam and every key, k x keys. They are the same in
                # all layers, so the cache computes them once per step.
                rows = cache.compute_once(
                    ("relative positions", tables.max_distance),
                    lambda: tables.compute_rows(cache.newest, cache.positions).expand(
                        cache.beams, cache.positions.size(0)
                    ),
                )
                distances = tables, rows

        # 2. Attend.
        attended, weights = attend(
            queries,
            parts,
            mask=mask,
            dropout=self.dropout,
            distances=distances,
            use_matmul=cache.use_matmul,
            need_weights=need_weights,
        )

        # 3. Join the heads: B x heads x k x head_dim -> 1 x N x C.
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

    def project_values(self, source: Tensor) -> Tensor:
        """Return the values of self-attention before they are split into heads, T x B x C."""
        if self._joined is None:
            return self.value_projection(source)
        _, _, values = self._joined(source).chunk(3, dim=-1)
        return values

    def _project_self_attention(self, source: Tensor, blend: tuple[Tensor, Tensor] | None) -> tuple[Tensor, ...]:
        """Return queries, keys and values of self-attention, T x B x C each; ``blend``: as in :meth:`forward`."""
        if self._joined is None:
            queries = self.query_projection(source)
            keys = self.key_projection(source)
            values = self.value_projection(source)
        else:
            queries, keys, values = self._joined(source).chunk(3, dim=-1)
        if blend is not None:
            other_values, weights = blend
            values = weights[0] * other_values + weights[1] * values
        return queries, keys, values

    def project_encoder_output(self, source: Tensor) -> KeysValues:
        """Return keys and values of the encoder's output (S x B x C), B x heads x S x head_dim each."""
        return KeysValues(
            self._split_heads(self.key_projection(source)), self._split_heads(self.value_projection(source))
        )

    def _split_heads(self, projected: Tensor) -> Tensor:
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
    use_matmul: bool = False,
    need_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Return the sums of values, B x heads x T x head_dim, and the weights (B x heads x T x S) with ``need_weights``.

    Args:
        queries: B x heads x T x head_dim.
        parts: keys and values, in parts along the S positions; the fused kernel takes one part only.
        mask: added to the scores; broadcasts to B x heads x T x S.
        distances: tables of relative positions, and their row for each pair of positions, T x S.
        kernel_causal: let the fused kernel create the causal mask; only without ``mask`` and ``distances``.
        use_matmul: compute by matrix multiplications instead of the fused kernel; not together with ``kernel_causal``.
        need_weights: also return the weights, which need matrix multiplications.
    """
    on_cpu = queries.device.type == "cpu"
    # Traced graphs get matrix multiplications: a compiler may fuse them, and other engines have no fused kernel.
    use_matmul = use_matmul or need_weights or len(parts) > 1 or torch.compiler.is_compiling()
    if distances is not None:
        tables, rows = distances
        scores = tables.key_scores(queries, rows)
        mask = scores if mask is None else scores + mask
        # If the mask needs gradients, PyTorch does not use the fused kernel either, and its dropout is slow on a CPU.
        use_matmul = use_matmul or tables.value_term or (on_cpu and queries.requires_grad)
    if use_matmul:
        attended, weights = _attend_with_weights(queries, parts, mask, dropout, distances)
        return attended, weights if need_weights else None

    # The fused kernel.
    dtype = queries.dtype
    keys, values = parts[0]
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
    """Compute :func:`attend` by matrix multiplications."""
    # Scores of all parts, side by side: B x heads x T x S. torch.cat would copy even a single part.
    products = [torch.matmul(queries, part.keys.transpose(2, 3)) for part in parts]
    scores = products[0] if len(parts) == 1 else torch.cat(products, dim=3)
    scores = scores * queries.size(-1) ** -0.5
    if mask is not None:
        scores = scores + mask

    # As in the fused kernel, the softmax is computed in float32 at least.
    precise = torch.promote_types(scores.dtype, torch.float32)
    weights = torch.softmax(scores, dim=-1, dtype=precise).to(scores.dtype)
    dropped = dropout(weights)

    # The sum over S is the sum over the parts.
    part_lengths = [part.keys.size(2) for part in parts]
    part_weights = [dropped] if len(parts) == 1 else dropped.split(part_lengths, dim=3)
    attended = torch.matmul(part_weights[0], parts[0].values)
    for weights_of_part, part in zip(part_weights[1:], parts[1:], strict=True):
        attended = attended + torch.matmul(weights_of_part, part.values)

    if distances is not None:
        tables, rows = distances
        if tables.value_term:
            attended = attended + tables.value_sums(dropped, rows)
    return attended, weights


def make_attention_mask(queries: Tensor, keys: Tensor, padding: Tensor | None, causal: bool) -> Tensor | None:
    """Return an additive mask that broadcasts to B x heads x T x S; None where nothing is hidden."""
    length, source_length = queries.size(2), keys.size(2)
    mask = None
    if causal and length > 1:
        future = torch.ones(length, source_length, dtype=torch.bool, device=queries.device).triu(1)
        mask = additive_mask(future, queries.dtype)  # T x S
    if padding is not None:
        padding_mask = additive_mask(padding, queries.dtype)[:, None, None, :]  # B x 1 x 1 x S
        mask = padding_mask if mask is None else torch.minimum(mask, padding_mask)
    return mask


def additive_mask(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """Return 0 where ``hidden`` is False, half the lowest finite number where it is True, to be added to scores.

    Boolean masks are slow in several of PyTorch's kernels. With -inf, a row in which everything is hidden would become
    NaN; sentences padded on the left have such rows. Half of the lowest number leaves room to add a negative score in
    16 bits.
    """
    lowest = torch.finfo(dtype).min / 2
    return torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill(hidden, lowest)
