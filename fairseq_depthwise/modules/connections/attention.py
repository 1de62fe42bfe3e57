"""Attention over depth: each layer chooses by content which of the layers below it reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_depthwise.modules.connections.sources import source_names, weighted_parts, weighted_sum
from fairseq_depthwise.modules.stack import Connection, OfLayers, StackShape


class AttentionState(NamedTuple):
    """What the layers below have left.

    Attributes:
        stream: what the next layer reads, T x B x d.
        sources: the embedding, and the sum of each block that is complete; T x B x d each.
        scores: of each source for all readers, T x B x L each.
        block: the sum of the block that is not complete, T x B x d; None at its start.
        queries: of all readers, L x d.
    """

    stream: Tensor
    sources: tuple[Tensor, ...]
    scores: tuple[Tensor, ...]
    block: Tensor | None
    queries: Tensor


class AttentionConnection(Connection):
    """Attention residuals: layer l reads ``h_l = sum_i softmax_i(q_l . RMSNorm(s_i)) s_i``.

    Source: "Attention Residuals" (arXiv 2603.15031). s_0 is the embedding, and s_i what layer i adds to what it reads:
    there is no other residual connection between layers. In the form by blocks, s_i is what block i adds, and a layer
    within a block reads the sum of its block so far as one more source. The stack's output is what one more reader
    reads, through a layer norm. Queries are free vectors, 0 at first, so that all sources count alike.

    The paper's layers are sub-layers; whole ones have residual connections inside. Blocks of 0 or 1 are the full form.
    """

    has_blocks = has_units = True
    no_identity = "the connection attention"  # whose softmax gives a share to what adds nothing, too

    def __init__(self, shape: StackShape) -> None:
        super().__init__(shape)
        self.block_size = max(1, shape.block_size)
        self.of_layers = {"rows": OfLayers(first=1, units=self.units)}
        #: q_1 to q_L; the first layer, 0, has nothing to choose.
        self.rows = nn.ParameterList(torch.zeros(shape.embed_dim) for _ in range(shape.layers))

    def initial_state(self, embedded: Tensor) -> AttentionState:
        queries = torch.stack(list(self.rows))
        return AttentionState(embedded, (embedded,), (_scores(embedded, queries),), None, queries)

    def update(self, state: AttentionState, index: int, output: Tensor) -> AttentionState:
        added = output - state.stream
        block = added if state.block is None else state.block + added
        scores = _scores(block, state.queries)
        sources, all_scores = (*state.sources, block), (*state.scores, scores)
        shares = _shares(all_scores, index).to(output.dtype)
        stream = weighted_sum(sources, shares.unsqueeze(-2).unbind(dim=-1))
        if (index + 1) % self.block_size == 0:
            return AttentionState(stream, sources, all_scores, None, state.queries)
        return AttentionState(stream, state.sources, state.scores, block, state.queries)

    def source_weights(self, states: Sequence[AttentionState]) -> dict[str, Tensor]:
        """Return the softmax of q_l, l the layers below: T x B each of what the embedding, layers or blocks added."""
        state, below = states[-1], len(states) - 1
        if not below:  # the first layer reads the embedding
            return {}
        unfinished = () if state.block is None else (_scores(state.block, state.queries),)
        shares = _shares((*state.scores, *unfinished), below - 1)
        part, units = ("layer", self.units) if self.block_size == 1 else ("block", 1)
        return dict(zip(source_names(shares.size(-1), part, units), shares.unbind(dim=-1), strict=True))

    def source_parts(self, states: Sequence[AttentionState]) -> dict[str, Tensor]:
        """Return the terms of h_l."""
        weights, state = self.source_weights(states), states[-1]
        sources = state.sources if state.block is None else (*state.sources, state.block)
        return weighted_parts(sources, weights) if weights else {}


def _shares(scores: Sequence[Tensor], index: int) -> Tensor:
    """Compute ``softmax_i(q_l . RMSNorm(s_i))`` of reader ``index``, counted from 0: T x B x sources."""
    precise = torch.promote_types(scores[0].dtype, torch.float32)
    return torch.stack([score[..., index] for score in scores], dim=-1).softmax(dim=-1, dtype=precise)


def _scores(source: Tensor, queries: Tensor) -> Tensor:
    """Compute ``q_l . RMSNorm(s)`` for all readers: T x B x L."""
    return F.linear(F.rms_norm(source, source.shape[-1:]), queries)
