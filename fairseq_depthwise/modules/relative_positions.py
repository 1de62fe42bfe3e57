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
        max_distance: m; positions farther away count as m away.
        value_term: also compute the sum over values (Shaw et al., Eq. 3); otherwise scores of keys only (Eq. 4).
        one_table: r^V is r^K, as in the authors' program of the Multi-Unit Transformers.
        units: number of tables, for parallel units; the batch then holds the sentences of unit 1, of unit 2 and so on.
    """

    def __init__(
        self,
        *,
        head_dim: int,
        max_distance: int,
        value_term: bool = False,
        one_table: bool = False,
        units: int | None = None,
    ) -> None:
        super().__init__()
        self.max_distance = max_distance
        self.value_term = value_term
        shape = (2 * max_distance + 1, head_dim) if units is None else (units, 2 * max_distance + 1, head_dim)
        self.key_table = nn.Parameter(torch.empty(shape))
        self.value_table = nn.Parameter(torch.empty(shape)) if value_term and not one_table else None
        for table in self.parameters():
            for matrix in table.detach().view(-1, *shape[-2:]):
                nn.init.xavier_uniform_(matrix)

    def compute_distances(self, length: int, device: torch.device) -> tuple[RelativePositions, Tensor]:
        """Return the tables, and the row in them of each pair of positions of a sentence, T x T."""
        positions = torch.arange(length, device=device)
        return self, self.compute_rows(positions, positions)

    def compute_rows(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Return the row in the tables of each pair, T x S, of query positions (T) and key positions (S)."""
        distances = key_positions[None, :] - query_positions[:, None]
        return distances.clamp(-self.max_distance, self.max_distance) + self.max_distance

    def key_scores(self, queries: Tensor, rows: Tensor) -> Tensor:
        """Return what to add to scores, B x heads x T x S, for ``queries`` B x heads x T x head_dim, ``rows`` T x S."""
        # Scores of all distances, B x heads x T x (2m + 1), of which each pair takes the one of its distance.
        by_distance = _multiply_by_table(queries, self.key_table.transpose(-1, -2)) * queries.size(-1) ** -0.5
        return by_distance.gather(3, rows.expand(*queries.shape[:2], *rows.shape))

    def value_sums(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Return what to add to the outputs, B x heads x T x head_dim, for ``weights`` B x heads x T x S."""
        table = self.key_table if self.value_table is None else self.value_table
        # Weights are summed by distance, B x heads x T x (2m + 1). All far keys add up in one place, where every
        # addition would be rounded in 16 bits.
        precise = torch.promote_types(weights.dtype, torch.float32)
        by_distance = weights.new_zeros(*weights.shape[:3], table.size(-2), dtype=precise)
        by_distance = by_distance.scatter_add(3, rows.expand_as(weights), weights.to(precise))
        return _multiply_by_table(by_distance.to(weights.dtype), table)


def _multiply_by_table(values: Tensor, table: Tensor) -> Tensor:
    """Multiply B x heads x T x n by n x m, or by units x n x m, where each unit has an equal share of the B."""
    table = table.to(values.dtype)
    if table.dim() == 2:
        return torch.matmul(values, table)
    by_unit = values.reshape(table.size(0), -1, values.size(-1))
    return torch.bmm(by_unit, table).view(*values.shape[:3], -1)
