"""Token embedding: scale, sinusoids, padding, and one position at a time."""

from __future__ import annotations

import pytest
import torch
from fairseq.modules import SinusoidalPositionalEmbedding

from fairseq_depthwise.modules.embedding import SinusoidalPositions

PAD, WIDTH = 1, 6


@pytest.mark.parametrize("width", [6, 7])
def test_sinusoids_are_those_of_fairseq(width: int) -> None:
    """So that a model of ours and a stock one differ in their layers only."""
    tokens = torch.tensor([[PAD, 4, 7, 5], [6, 8, 9, PAD]])
    ours = SinusoidalPositions(embed_dim=width, padding_idx=PAD)
    stock = SinusoidalPositionalEmbedding(width, PAD)
    torch.testing.assert_close(ours(tokens), stock(tokens))
    assert list(ours.state_dict()) == []
