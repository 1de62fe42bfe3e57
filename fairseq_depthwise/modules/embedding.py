"""From token numbers to the input of a stack."""

from __future__ import annotations

import math
from typing import Any

from fairseq.modules import PositionalEmbedding
from torch import Tensor, nn


class TokenEmbedding(nn.Module):
    """``dropout(sqrt(d) * E[token] + position)`` (Vaswani et al. 2017, Section 3.4 and 3.5).

    Args:
        tokens: the embedding table, possibly shared with the other side and with the output projection.
        max_positions: longest sentence that learned positions have rows for; sinusoids have no limit.
        learned_positions: learned positions instead of sinusoids.
        positions: False leaves absolute positions out.
        scale: False leaves the factor sqrt(d) out.
        dropout: dropout of the sum.
    """

    def __init__(
        self,
        *,
        tokens: nn.Embedding,
        max_positions: int,
        learned_positions: bool = False,
        positions: bool = True,
        scale: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if tokens.padding_idx is None:
            raise ValueError("the embedding table needs a padding_idx")
        self.tokens = tokens
        self.scale = math.sqrt(tokens.embedding_dim) if scale else 1.0
        self.positions = (
            PositionalEmbedding(max_positions, tokens.embedding_dim, tokens.padding_idx, learned=learned_positions)
            if positions
            else None
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, incremental_state: dict[str, Any] | None = None) -> Tensor:
        """``tokens`` (B x T) to T x B x d.

        With ``incremental_state`` only the last position is embedded, and T is 1.
        """
        position = None
        if self.positions is not None:
            position = self.positions(tokens, incremental_state=incremental_state)
        if incremental_state is not None:
            tokens = tokens[:, -1:]
            position = None if position is None else position[:, -1:]
        embedded = self.scale * self.tokens(tokens)
        if position is not None:
            embedded = embedded + position
        return self.dropout(embedded).transpose(0, 1)
