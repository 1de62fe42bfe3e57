"""Self-attention of several parallel units in one computation: the sentences of all units make up one batch."""

from __future__ import annotations

from torch import Tensor, nn

from fairseq_depthwise.modules.attention import KeysValues, attend, make_attention_mask
from fairseq_depthwise.modules.dropout import Dropout
from fairseq_depthwise.modules.linear.batched import UnitLinear
from fairseq_depthwise.modules.relative_positions import RelativePositions


class UnitAttention(nn.Module):
    """Multi-head self-attention of each unit over a sentence, with biases (SelfAttn_i of Equation 8).

    ``units`` is the number of attentions, and of tables of relative positions: 1 where all units share them.
    """

    def __init__(
        self,
        *,
        units: int,
        embed_dim: int,
        heads: int,
        dropout: float = 0.0,
        relative_positions: RelativePositions | None = None,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = Dropout(dropout)
        self.query_projection = UnitLinear(units=units, in_features=embed_dim, out_features=embed_dim)
        self.key_projection = UnitLinear(units=units, in_features=embed_dim, out_features=embed_dim)
        self.value_projection = UnitLinear(units=units, in_features=embed_dim, out_features=embed_dim)
        self.output_projection = UnitLinear(units=units, in_features=embed_dim, out_features=embed_dim)
        self.relative_positions = relative_positions

    def forward(
        self, inputs: Tensor, padding: Tensor | None, *, need_weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Attend within each unit.

        Args:
            inputs: U x T x B x d; U is 1 where all units read the same.
            padding: B x T, True at padding; None where there is none.
            need_weights: also return the attention weights.

        Returns:
            U x T x B x d, where U is 1 if the units share inputs and attention; and the weights (U x heads x B x T x
            T), or None unless ``need_weights``.
        """
        # 1. Project and split into heads: U x T x B x d -> (U B) x heads x T x head_dim.
        queries = self._split_heads(self.query_projection(inputs))
        keys = self._split_heads(self.key_projection(inputs))
        values = self._split_heads(self.value_projection(inputs))

        # 2. Attend. Projections of one input by several units have more rows than the input.
        units = queries.size(0) // inputs.size(2)
        if padding is not None:
            padding = padding.repeat(units, 1)
        tables = self.relative_positions
        attended, weights = attend(
            queries,
            (KeysValues(keys, values),),
            mask=make_attention_mask(queries, keys, padding, causal=False),
            dropout=self.dropout,
            distances=None if tables is None else tables.compute_distances(inputs.size(1), inputs.device),
            need_weights=need_weights,
        )

        # 3. Join the heads: (U B) x heads x T x head_dim -> U x T x B x d.
        joined = attended.unflatten(0, (units, -1)).permute(0, 3, 1, 2, 4).flatten(3)
        if weights is not None:
            weights = weights.unflatten(0, (units, -1)).transpose(1, 2)
        return self.output_projection(joined), weights

    def _split_heads(self, projected: Tensor) -> Tensor:
        """Split U x T x B x d into (U B) x heads x T x head_dim."""
        return projected.unflatten(-1, (self.heads, -1)).permute(0, 2, 3, 1, 4).flatten(0, 1)
