"""Token embedding: scale, sinusoids, padding, and one position at a time."""

from __future__ import annotations

import pytest
import torch
from fairseq.modules import SinusoidalPositionalEmbedding
from second_reading import read_embedding
from torch import nn

from fairseq_depthwise.modules.embedding import SinusoidalPositions, TokenEmbedding

PAD, WIDTH = 1, 6


def build(*, learned: bool = False, positions: bool = True, scale: bool = True) -> TokenEmbedding:
    torch.manual_seed(1)
    table = nn.Embedding(10, WIDTH, padding_idx=PAD)
    return TokenEmbedding(
        tokens=table, max_positions=20, learned_positions=learned, positions=positions, scale=scale
    ).eval()


def test_sum_of_scaled_row_and_sinusoid() -> None:
    embedding, tokens = build(), torch.tensor([4, 7, 5])
    torch.testing.assert_close(embedding(tokens[None])[:, 0], read_embedding(embedding.tokens.weight, tokens))


@pytest.mark.parametrize("learned", [False, True])
def test_padding_is_zero_and_moves_no_position(learned: bool) -> None:
    embedding = build(learned=learned)
    alone = embedding(torch.tensor([[4, 7]]))
    left = embedding(torch.tensor([[PAD, PAD, 4, 7]]))
    right = embedding(torch.tensor([[4, 7, PAD]]))
    torch.testing.assert_close(left[2:], alone)
    torch.testing.assert_close(right[:2], alone)
    assert left[:2].abs().max() == 0
    assert right[2:].abs().max() == 0


def test_sinusoids_reach_beyond_the_longest_sentence() -> None:
    assert build()(torch.full((1, 2000), 4)).shape == (2000, 1, WIDTH)


def test_sinusoids_of_two_values_are_finite() -> None:
    """fairseq divides by half the width less one."""
    assert torch.isfinite(SinusoidalPositions(embed_dim=2, padding_idx=PAD).table).all()


@pytest.mark.parametrize("width", [6, 7])
def test_sinusoids_are_those_of_fairseq(width: int) -> None:
    """So that a model of ours and a stock one differ in their layers only."""
    tokens = torch.tensor([[PAD, 4, 7, 5], [6, 8, 9, PAD]])
    ours = SinusoidalPositions(embed_dim=width, padding_idx=PAD)
    stock = SinusoidalPositionalEmbedding(width, PAD)
    torch.testing.assert_close(ours(tokens), stock(tokens))
    assert list(ours.state_dict()) == []
