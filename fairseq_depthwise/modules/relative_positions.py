"""Relative positions in attention.

Source: Shaw, Uszkoreit, Vaswani: "Self-Attention with Relative Position Representations", Equations 3 to 5. With
query i, key j and distance a(j - i), clipped to +-m: scores get ``q_i . r^K_a / sqrt(head_dim)``, and outputs get the
sum over j of ``weight_ij * r^V_a``.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RelativePositions(nn.Module):
    """The tables of one attention module, shared by its heads.

    Args:
        head_dim: width of a head.
        max_distance: m; farther positions count as m away.
        value_term: also a table for the values (Shaw et al., Eq. 3); otherwise for the keys only (Eq. 4).
    """

    def __init__(self, *, head_dim: int, max_distance: int, value_term: bool = False) -> None:
        super().__init__()
        self.max_distance = max_distance
        self.key_table = nn.Parameter(torch.empty(2 * max_distance + 1, head_dim))
        self.value_table = nn.Parameter(torch.empty(2 * max_distance + 1, head_dim)) if value_term else None
        for table in self.parameters():
            nn.init.xavier_uniform_(table)

    def rows(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """The tables' row for each pair, T x S, of positions T and S."""
        distances = key_positions[None, :] - query_positions[:, None]
        return distances.clamp(-self.max_distance, self.max_distance) + self.max_distance

    def key_scores(self, queries: Tensor, rows: Tensor) -> Tensor:
        """What to add to the scores, B x heads x T x S, for ``queries`` B x heads x T x head_dim and ``rows`` T x S."""
        by_distance = torch.matmul(queries, self.key_table.T) * queries.size(-1) ** -0.5
        return by_distance.gather(3, rows.expand(*queries.shape[:2], *rows.shape))

    def value_sums(self, weights: Tensor, rows: Tensor) -> Tensor | None:
        """What to add to the outputs, B x heads x T x head_dim, for ``weights`` B x heads x T x S.

        None without a table for the values.
        """
        if self.value_table is None:
            return None
        by_distance = weights.new_zeros(*weights.shape[:3], self.value_table.size(0))
        by_distance = by_distance.scatter_add(3, rows.expand_as(weights), weights)
        return torch.matmul(by_distance, self.value_table)
