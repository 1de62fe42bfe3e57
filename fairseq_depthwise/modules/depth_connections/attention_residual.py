"""Attention over depth: each layer reads the layers below it with input-dependent weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_depthwise.modules.stack import Connection, OfLayers, StackShape
from fairseq_depthwise.modules.weighted_sum import weighted_sum


class AttentionState(NamedTuple):
    """What runs up the stack.

    Attributes:
        stream: what the next layer reads, T x B x d.
        sources: the embedding, and the sum of each complete block, T x B x d each.
        scores: of each of these sources for all readers, T x B x L each. A source is scored once, when it is complete.
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
    reads, through a layer norm. Queries are free vectors, initialized to 0, so that all sources count alike.

    The paper's layers are sub-layers; whole ones have residual connections inside. Blocks of 0 or 1 are the full form.
    """

    has_blocks = True
    has_sublayers = True
    # The softmax gives a share to sources that add nothing, too.
    no_identity_reason = "the connection attention"

    def __init__(self, shape: StackShape) -> None:
        super().__init__(shape)
        self.block_size = max(1, shape.block_size)
        self.of_layers = {"rows": OfLayers(first=1, sublayers=shape.sublayers)}
        #: q_1 to q_L; the first layer, 0, has nothing to choose from.
        self.rows = nn.ParameterList(torch.zeros(shape.embed_dim) for _ in range(shape.layers))

    def initial_state(self, embedded: Tensor) -> AttentionState:
        queries = torch.stack(list(self.rows))
        return AttentionState(
            stream=embedded,
            sources=(embedded,),
            scores=(source_scores(embedded, queries),),
            block=None,
            queries=queries,
        )

    def update(self, state: AttentionState, index: int, output: Tensor) -> AttentionState:
        added = output - state.stream
        block = added if state.block is None else state.block + added

        # The block so far is one more source of the next reader, number ``index`` of those that have a query.
        sources = (*state.sources, block)
        scores = (*state.scores, source_scores(block, state.queries))
        shares = source_shares(scores, index).to(output.dtype)  # T x B x sources
        stream = weighted_sum(sources, shares.unsqueeze(-2).unbind(dim=-1))

        block_is_complete = (index + 1) % self.block_size == 0
        if block_is_complete:
            return AttentionState(stream, sources, scores, None, state.queries)
        return state._replace(stream=stream, block=block)


def source_scores(source: Tensor, queries: Tensor) -> Tensor:
    """Compute ``q_l . RMSNorm(s)`` of a source (T x B x d) for all readers: T x B x L."""
    return F.linear(F.rms_norm(source, source.shape[-1:]), queries)


def source_shares(scores: Sequence[Tensor], reader: int) -> Tensor:
    """Compute ``softmax_i(q_l . RMSNorm(s_i))`` of a reader, counted from 0: T x B x sources."""
    scores_of_reader = torch.stack([scores_of_source[..., reader] for scores_of_source in scores], dim=-1)
    precise = torch.promote_types(scores_of_reader.dtype, torch.float32)
    return scores_of_reader.softmax(dim=-1, dtype=precise)
