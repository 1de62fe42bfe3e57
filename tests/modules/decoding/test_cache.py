"""The cache of a beam search against sequences that are attended to at once, row by row."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fairseq_depthwise.modules.attention import MultiheadAttention
from fairseq_depthwise.modules.decoding.cache import DecodingCache
from fairseq_depthwise.modules.relative_positions import RelativePositions

WIDTH, HEADS = 8, 2
SOURCE_PADDING = torch.tensor([[True, False, False], [False, False, False], [False, False, False]])


def randn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Search:
    """Self- and cross-attention over rows whose histories are kept in the open, beside a cache."""

    def __init__(self, beams: int, relative: str = "none") -> None:
        torch.manual_seed(1)
        tables = None
        if relative != "none":
            tables = RelativePositions(head_dim=WIDTH // HEADS, max_distance=2, value_term=relative == "key-value")
        self.self_attention = MultiheadAttention(embed_dim=WIDTH, heads=HEADS, relative_positions=tables).double()
        self.cross_attention = MultiheadAttention(embed_dim=WIDTH, heads=HEADS, attend_encoder=True).double()
        self.source, self.padding = randn(3, 3, WIDTH, seed=2), SOURCE_PADDING
        self.sentence = torch.arange(3).repeat_interleave(beams)
        self.cache = DecodingCache(self.source, self.padding, self.sentence)
        self.history = torch.empty(0, 3 * beams, WIDTH, dtype=torch.float64)

    def step(self, seed: int) -> None:
        """Feed every row another vector, and compare with attending to its whole history."""
        self.history = torch.cat([self.history, randn(1, self.history.size(1), WIDTH, seed=seed)])
        self.cache.begin_step()
        newest = self.history[-1:]
        expected, _ = self.self_attention(self.history, self.history, causal=True)
        torch.testing.assert_close(self.self_attention.step(newest, self.cache)[0], expected[-1:])
        source, padding = self.source[:, self.sentence], self.padding[self.sentence]
        crossed, weights = self.cross_attention(newest, source, padding=padding, need_weights=True)
        found, found_weights = self.cross_attention.step(newest, self.cache, need_weights=True)
        torch.testing.assert_close(found, crossed)
        torch.testing.assert_close(found_weights, weights)
        torch.testing.assert_close(self.cross_attention.step(newest, self.cache)[0], crossed)

    def reorder(self, *order: int) -> None:
        new_order = torch.tensor(order)
        self.history, self.sentence = self.history[:, new_order], self.sentence[new_order]
        self.cache.reorder(new_order)


@pytest.mark.parametrize("relative", ["none", "key", "key-value"])
def test_beams_are_exchanged_and_finished_sentences_leave(relative: str) -> None:
    search = Search(beams=2, relative=relative)
    with torch.no_grad():
        search.step(3)
        search.reorder(0, 0, 3, 2, 4, 5)  # all from the first beam, swapped, unchanged
        search.step(4)
        search.reorder(1, 0, 2, 2, 5, 5)
        search.step(5)
        search.reorder(4, 5, 1, 0)  # the second sentence is finished, and the others change places
        assert search.cache.sentences == 2
        for seed in range(6, 46):  # beyond the room that is made at first
            search.step(seed)
            search.reorder(1, 0, 3, 3)


def test_rows_that_are_no_beams_get_copies_of_their_own() -> None:
    cache = DecodingCache(randn(3, 3, WIDTH, seed=2), SOURCE_PADDING, torch.tensor([2, 0, 0]))
    assert (cache.sentences, cache.beams) == (3, 1)
    torch.testing.assert_close(cache.source, randn(3, 3, WIDTH, seed=2)[:, [2, 0, 0]])
