"""Token and position embeddings: the input of a stack."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_depthwise.modules.dropout import Dropout


class SinusoidalPositions(nn.Module):
    """Fixed positions (Vaswani et al. 2017, Section 3.5): sines in the first half of the width, cosines in the second.

    The values are those of fairseq's own module, which this one replaces because it saves an uninitialized number in
    every checkpoint. The first token of a sentence has position ``padding_idx + 1``; padding has a zero vector. Longer
    sentences extend the table.
    """

    table: Tensor

    def __init__(self, *, embed_dim: int, padding_idx: int, length: int = 1024) -> None:
        super().__init__()
        self.embed_dim = embed_dim
        self.padding_idx = padding_idx
        self.register_buffer("table", self._compute_vectors(padding_idx + 1 + length), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the vectors (B x T x C) of ``tokens`` (B x T)."""
        self.reach(tokens.size(1))
        return self.table[_position_rows(tokens, self.padding_idx)]

    def at(self, position: Tensor) -> Tensor:
        """Return the vector (1 x C) of a position, counted from 0; :meth:`reach` must have been called for it."""
        return self.table.index_select(0, self.padding_idx + 1 + position)

    def reach(self, length: int) -> None:
        """Extend the table to this number of positions, if it is shorter."""
        if self.padding_idx + 1 + length > self.table.size(0):
            self.table = self._compute_vectors(self.padding_idx + 1 + 2 * length).to(self.table)

    def _compute_vectors(self, count: int) -> Tensor:
        """Return the vectors of the first rows of the table, count x C."""
        half = self.embed_dim // 2
        frequencies = torch.exp(torch.arange(half, dtype=torch.float) * -(math.log(10000) / max(half - 1, 1)))
        angles = torch.arange(count, dtype=torch.float)[:, None] * frequencies
        vectors = torch.cat([torch.sin(angles), torch.cos(angles)], dim=1)
        # An odd width ends in a zero.
        vectors = nn.functional.pad(vectors, (0, self.embed_dim - 2 * half))
        vectors[self.padding_idx] = 0
        return vectors


def _position_rows(tokens: Tensor, padding_idx: int) -> Tensor:
    """Return the row (B x T) of each token (B x T): token t of a sentence, counted from 1, has row padding_idx + t."""
    is_token = tokens.ne(padding_idx).long()
    return torch.cumsum(is_token, dim=1) * is_token + padding_idx


class LearnedPositions(nn.Embedding):
    """A table with the rows of :class:`SinusoidalPositions`, and none for longer sentences."""

    padding_idx: int

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the vectors (B x T x C) of ``tokens`` (B x T)."""
        return super().forward(_position_rows(tokens, self.padding_idx))

    def at(self, position: Tensor) -> Tensor:
        """Return the vector (1 x C) of a position, counted from 0."""
        return self.weight.index_select(0, self.padding_idx + 1 + position)


class TokenEmbedding(nn.Module):
    """``dropout(sqrt(d) * E[token] + position)`` (Vaswani et al. 2017, Sections 3.4 and 3.5).

    Args:
        tokens: the table E, which may be shared with the other side and with the output projection.
        max_positions: rows of learned positions; the initial length of the table of sinusoids.
        learned_positions: learn the positions.
        positions: add absolute positions.
        scale: multiply by the factor sqrt(d).
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
        assert tokens.padding_idx is not None
        self.tokens = tokens
        self.scale = math.sqrt(tokens.embedding_dim) if scale else 1.0
        self.positions: SinusoidalPositions | LearnedPositions | None = None
        if positions:
            self.positions = _build_positions(
                tokens.embedding_dim, tokens.padding_idx, max_positions, learned_positions
            )
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Tensor, incremental_state: dict[str, Any] | None = None) -> Tensor:
        """Embed ``tokens`` (B x T) as T x B x d.

        With ``incremental_state`` only the last position is embedded, and T is 1.
        """
        if incremental_state is not None:
            self.reach(tokens.size(1))
            return self.at(tokens[:, -1], torch.tensor([tokens.size(1) - 1], device=tokens.device))
        embedded = self.scale * self.tokens(tokens)  # B x T x d
        if self.positions is not None:
            embedded = embedded + self.positions(tokens)
        return self.dropout(embedded).transpose(0, 1)

    def reach(self, length: int) -> None:
        """Make sure that there are vectors for this number of positions; learned ones are fixed."""
        if isinstance(self.positions, SinusoidalPositions):
            self.positions.reach(length)

    def at(self, tokens: Tensor, position: Tensor) -> Tensor:
        """Embed ``tokens`` (N) at one position, counted from 0, as 1 x N x d."""
        embedded = self.scale * self.tokens(tokens)  # N x d
        if self.positions is not None:
            embedded = embedded + self.positions.at(position)
        return self.dropout(embedded).unsqueeze(0)


def _build_positions(
    embed_dim: int, padding_idx: int, longest: int, learned: bool
) -> SinusoidalPositions | LearnedPositions:
    if not learned:
        return SinusoidalPositions(embed_dim=embed_dim, padding_idx=padding_idx, length=longest)
    # Rows up to padding_idx are no positions; that of padding stays 0.
    table = LearnedPositions(longest + padding_idx + 1, embed_dim, padding_idx)
    nn.init.normal_(table.weight, mean=0, std=embed_dim**-0.5)
    nn.init.zeros_(table.weight[padding_idx])
    return table
