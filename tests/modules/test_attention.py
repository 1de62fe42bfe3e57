"""Attention against the second reading, sentence by sentence; masks; relative positions; precision."""

from __future__ import annotations

import pytest
import torch
from module_checks import randn
from second_reading import read_attention_and_weights

from fairseq_depthwise.modules.attention import MultiheadAttention
from fairseq_depthwise.modules.relative_positions import RelativePositions

WIDTH, HEADS = 8, 2


def build_attention(
    *, bias: bool = False, attend_encoder: bool = False, max_distance: int = 0, value_term: bool = False
) -> MultiheadAttention:
    torch.manual_seed(3)
    relative = None
    if max_distance:
        relative = RelativePositions(head_dim=WIDTH // HEADS, max_distance=max_distance, value_term=value_term)
    attention = MultiheadAttention(
        embed_dim=WIDTH, heads=HEADS, bias=bias, attend_encoder=attend_encoder, relative_positions=relative
    )
    return attention.double().eval()


PADDING = torch.tensor([[False, False, False, False, True], [True, True, False, False, False], [False] * 5])


#: Without gradients a few queries on a CPU go another way.
with_and_without_gradients = pytest.mark.parametrize("gradients", [True, False], ids=["gradients", "inference"])


@with_and_without_gradients
@pytest.mark.parametrize("terms", ["none", "key", "key-value"])
@pytest.mark.parametrize("kind", ["cross", "causal", "self"])
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("need_weights", [False, True], ids=["kernel", "weights"])
def test_attention_is_the_second_reading(
    kind: str, terms: str, padded: bool, need_weights: bool, gradients: bool
) -> None:
    """With biases in cross-attention, sentence by sentence; relative positions are for self-attention only."""
    cross, far = kind == "cross", 0 if kind == "cross" or terms == "none" else 2
    attention = build_attention(bias=cross, attend_encoder=cross, max_distance=far, value_term=terms == "key-value")
    source = randn(5, 3, WIDTH, seed=5)
    query = randn(4, 3, WIDTH) if cross else source
    padding = (PADDING[[0, 2, 2]] if kind == "causal" else PADDING) if padded else None
    with torch.set_grad_enabled(gradients):
        output, weights = attention(query, source, padding=padding, causal=kind == "causal", need_weights=need_weights)
    assert (weights is not None) == need_weights
    for b in range(3):
        hidden = torch.ones(len(query), 5, dtype=torch.bool).triu(1) if kind == "causal" else torch.zeros(len(query), 5)
        hidden = hidden.bool() if padding is None else hidden.bool() | padding[b]
        expected, read = read_attention_and_weights(
            attention, query[:, b], source[:, b], hidden, far, terms == "key-value"
        )
        torch.testing.assert_close(output[:, b], expected, rtol=1e-6, atol=1e-6)
        if weights is not None:
            torch.testing.assert_close(weights[:, b], read, check_dtype=False, rtol=1e-6, atol=1e-7)


# --- numbers ---------------------------------------------------------------------------------------------------------


def test_a_row_of_nothing_but_padding_stays_finite() -> None:
    attention = build_attention().float()
    source = torch.randn(3, 1, WIDTH)
    padding = torch.tensor([[True, True, False]])
    output, _ = attention(source, source, padding=padding, causal=True)
    assert torch.isfinite(output).all()
