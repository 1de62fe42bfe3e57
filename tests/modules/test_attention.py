"""Attention against the second reading, sentence by sentence; masks; relative positions; precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from module_checks import randn, require_gradients
from second_reading import read_attention_and_weights
from torch import Tensor

from fairseq_depthwise.modules.attention import MultiheadAttention
from fairseq_depthwise.modules.decoding.cache import DecodingCache
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


@pytest.mark.parametrize(
    "options", [{"bias": True, "attend_encoder": True}, {"max_distance": 1}, {"max_distance": 1, "value_term": True}]
)
def test_gradients(options: dict[str, Any]) -> None:
    attention = build_attention(**options)
    query, source = randn(2, 2, WIDTH), randn(3, 2, WIDTH, seed=6)
    padding = torch.tensor([[False, False, True], [False, False, False]])
    inputs = (query, source) if "attend_encoder" in options else (source, source)
    require_gradients(attention, inputs, lambda returned: returned[0], padding=padding)


def decode(attention: MultiheadAttention, source: Tensor) -> Tensor:
    """Self-attention position by position, T x B x C, each row a sentence of its own."""
    count = source.size(1)
    cache = DecodingCache(torch.zeros(1, count, WIDTH, dtype=source.dtype), None, torch.arange(count))
    steps = []
    for position in source:
        cache.begin_step()
        steps.append(attention.step(position[None], cache)[0])
    return torch.cat(steps)


@pytest.mark.parametrize("options", [{}, {"max_distance": 2}, {"max_distance": 2, "value_term": True}], ids=str)
def test_decoding_step_by_step_is_attending_at_once(options: dict[str, Any]) -> None:
    attention = build_attention(**options)
    source = randn(40, 2, WIDTH)  # longer than the buffer that is made at first
    torch.testing.assert_close(decode(attention, source), attention(source, source, causal=True)[0])


def test_relative_positions_need_one_sentence() -> None:
    with pytest.raises(ValueError, match="no meaning between two sentences"):
        MultiheadAttention(
            embed_dim=WIDTH,
            heads=HEADS,
            attend_encoder=True,
            relative_positions=RelativePositions(head_dim=4, max_distance=2),
        )


# --- numbers ---------------------------------------------------------------------------------------------------------


def test_packed_projections_are_the_same_and_follow_their_weights() -> None:
    attention = build_attention(bias=True).float()
    source = randn(5, 3, WIDTH).float()
    with torch.no_grad():
        expected, _ = attention(source, source, padding=PADDING)
        attention.make_generation_fast_(name="attention")
        torch.testing.assert_close(attention(source, source, padding=PADDING)[0], expected)
        attention.query_projection.weight.mul_(3)
        attention.output_projection.weight.mul_(2)
        changed, _ = attention(source, source, padding=PADDING)
        fresh = build_attention(bias=True).float()
        fresh.load_state_dict(attention.state_dict())
        torch.testing.assert_close(changed, fresh(source, source, padding=PADDING)[0])
        torch.testing.assert_close(
            attention.double()(source.double(), source.double())[0].float(), attention.float()(source, source)[0]
        )


def test_bfloat16_gradients_on_a_cpu_are_near_those_of_float32() -> None:
    """There the kernel computes in float32, because its backward pass in bfloat16 is slow."""
    attention = build_attention().float().train()
    source = randn(5, 3, WIDTH).float()

    def gradients(attention: MultiheadAttention, source: Tensor) -> list[Tensor]:
        attention.zero_grad()
        attention(source, source, causal=True)[0].square().sum().backward()
        return [parameter.grad.float().clone() for parameter in attention.parameters()]

    expected = gradients(attention, source)
    found = gradients(attention.bfloat16(), source.bfloat16())
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0.1, atol=0.05 * float(other.abs().max()))


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
