"""Attention against a reading with loops over sentences, heads and positions; caches; masks."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from fairseq_depthwise.modules.attention import MultiheadAttention

WIDTH, HEADS = 8, 2


def build_attention(*, bias: bool = False, attend_encoder: bool = False) -> MultiheadAttention:
    torch.manual_seed(3)
    attention = MultiheadAttention(embed_dim=WIDTH, heads=HEADS, bias=bias, attend_encoder=attend_encoder)
    return attention.double().eval()


def randn(*shape: int, seed: int = 4) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def naive(
    attention: MultiheadAttention, query: Tensor, source: Tensor, padding: Tensor | None, causal: bool
) -> tuple[Tensor, Tensor]:
    """The textbook: for each sentence, head and position a softmax over the positions that may be seen."""
    query, source = query.detach(), source.detach()
    length, batch, _ = query.shape
    source_length, size = source.size(0), WIDTH // HEADS
    joined = torch.zeros(length, batch, WIDTH, dtype=torch.float64)
    weights = torch.zeros(HEADS, batch, length, source_length, dtype=torch.float64)

    def project(layer: torch.nn.Linear, vector: Tensor) -> Tensor:
        return layer.weight.detach() @ vector + (0 if layer.bias is None else layer.bias.detach())

    for b in range(batch):
        for h in range(HEADS):
            part = slice(h * size, (h + 1) * size)
            for t in range(length):
                q = project(attention.query_projection, query[t, b])[part]
                seen = [
                    s
                    for s in range(source_length)
                    if not (causal and s > t) and not (padding is not None and padding[b, s])
                ]
                keys = [project(attention.key_projection, source[s, b])[part] for s in seen]
                exponentials = [math.exp(float(q @ k) / math.sqrt(size)) for k in keys]
                for s, exponential in zip(seen, exponentials, strict=True):
                    weight = exponential / sum(exponentials)
                    weights[h, b, t, s] = weight
                    joined[t, b, part] += weight * project(attention.value_projection, source[s, b])[part]
    output = torch.stack([project(attention.output_projection, row) for row in joined.view(-1, WIDTH)])
    return output.view(length, batch, WIDTH), weights


PADDING = torch.tensor([[False, False, False, False, True], [True, True, False, False, False], [False] * 5])


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("padding", [None, PADDING], ids=["full", "padded"])
@pytest.mark.parametrize("need_weights", [False, True], ids=["kernel", "weights"])
def test_cross_attention_is_the_textbook(bias: bool, padding: Tensor | None, need_weights: bool) -> None:
    attention = build_attention(bias=bias, attend_encoder=True)
    query, source = randn(4, 3, WIDTH), randn(5, 3, WIDTH, seed=5)
    output, weights = attention(query, source, padding=padding, need_weights=need_weights)
    expected, expected_weights = naive(attention, query, source, padding, causal=False)
    torch.testing.assert_close(output, expected)
    if need_weights:
        torch.testing.assert_close(weights, expected_weights, check_dtype=False, rtol=1e-6, atol=1e-7)
    else:
        assert weights is None


@pytest.mark.parametrize("padding", [None, PADDING[[0, 2, 2]]], ids=["full", "padded"])
@pytest.mark.parametrize("need_weights", [False, True], ids=["kernel", "weights"])
def test_causal_self_attention_is_the_textbook(padding: Tensor | None, need_weights: bool) -> None:
    attention = build_attention()
    source = randn(5, 3, WIDTH)
    output, _ = attention(source, source, padding=padding, causal=True, need_weights=need_weights)
    torch.testing.assert_close(output, naive(attention, source, source, padding, causal=True)[0], rtol=1e-6, atol=1e-6)


def test_gradients() -> None:
    attention = build_attention(bias=True)
    query, source = randn(2, 2, WIDTH).requires_grad_(), randn(3, 2, WIDTH, seed=6).requires_grad_()
    padding = torch.tensor([[False, False, True], [False, False, False]])
    names, parameters = zip(*attention.named_parameters(), strict=True)

    def attend(query: Tensor, source: Tensor, *values: Tensor) -> Tensor:
        replaced = dict(zip(names, values, strict=True))
        return torch.func.functional_call(attention, replaced, (query, source), {"padding": padding})[0]

    leaves = [parameter.detach().clone().requires_grad_() for parameter in parameters]
    assert torch.autograd.gradcheck(attend, (query, source, *leaves))


def test_decoding_step_by_step_is_attending_at_once() -> None:
    attention = build_attention()
    source = randn(6, 2, WIDTH)
    at_once, _ = attention(source, source, causal=True)
    state: dict[str, Any] = {}
    steps = [attention(source[t : t + 1], source[t : t + 1], causal=True, incremental_state=state)[0] for t in range(6)]
    torch.testing.assert_close(torch.cat(steps), at_once)


def test_several_positions_can_follow_a_cache() -> None:
    attention = build_attention()
    source = randn(6, 2, WIDTH)
    at_once, _ = attention(source, source, causal=True)
    state: dict[str, Any] = {}
    first, _ = attention(source[:2], source[:2], causal=True, incremental_state=state)
    rest, _ = attention(source[2:], source[2:], causal=True, incremental_state=state)
    torch.testing.assert_close(torch.cat([first, rest]), at_once)


def test_encoder_keys_are_computed_once_and_follow_a_shrinking_batch() -> None:
    attention = build_attention(attend_encoder=True)
    encoder, query = randn(5, 3, WIDTH), randn(1, 3, WIDTH, seed=7)
    state: dict[str, Any] = {}
    first, _ = attention(query, encoder, padding=PADDING, incremental_state=state)
    again, _ = attention(query, torch.zeros_like(encoder), padding=None, incremental_state=state)
    assert torch.equal(first, again)
    attention.reorder_incremental_state(state, torch.tensor([2, 1]))
    shrunk, _ = attention(query[:, [2, 1]], encoder[:, [2, 1]], incremental_state=state)
    torch.testing.assert_close(shrunk, first[:, [2, 1]])


def test_self_attention_cache_follows_the_beams() -> None:
    attention = build_attention()
    source = randn(3, 2, WIDTH)
    state: dict[str, Any] = {}
    for t in range(2):
        attention(source[t : t + 1], source[t : t + 1], incremental_state=state)
    attention.reorder_incremental_state(state, torch.tensor([1, 1]))
    step, _ = attention(source[2:], source[2:], incremental_state=state)
    swapped = torch.cat([source[:2, [1, 1]], source[2:]])
    expected, _ = attention(swapped, swapped, causal=True)
    torch.testing.assert_close(step, expected[2:])


def test_a_row_of_nothing_but_padding_stays_finite() -> None:
    attention = build_attention().float()
    source = torch.randn(3, 1, WIDTH)
    padding = torch.tensor([[True, True, False]])
    output, _ = attention(source, source, padding=padding, causal=True)
    assert torch.isfinite(output).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_near_double(dtype: torch.dtype) -> None:
    attention = build_attention(attend_encoder=True)
    query, source = randn(4, 3, WIDTH), randn(5, 3, WIDTH, seed=5)
    expected, _ = attention(query, source, padding=PADDING)
    output, _ = attention.to(dtype)(query.to(dtype), source.to(dtype), padding=PADDING)
    torch.testing.assert_close(output.double(), expected, rtol=0.05, atol=0.02)


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(ValueError, match="embed_dim 10 is not divisible by heads 3"):
        MultiheadAttention(embed_dim=10, heads=3)
