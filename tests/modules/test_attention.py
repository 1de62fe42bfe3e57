"""Attention against a reading with loops over sentences, heads and positions; masks; relative positions; precision."""

from __future__ import annotations

import math

import pytest
import torch
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


#: Without gradients a few queries on a CPU go another way.
with_and_without_gradients = pytest.mark.parametrize("gradients", [True, False], ids=["gradients", "inference"])


@with_and_without_gradients
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("padding", [None, PADDING], ids=["full", "padded"])
@pytest.mark.parametrize("need_weights", [False, True], ids=["kernel", "weights"])
def test_cross_attention_is_the_textbook(
    bias: bool, padding: Tensor | None, need_weights: bool, gradients: bool
) -> None:
    attention = build_attention(bias=bias, attend_encoder=True)
    query, source = randn(4, 3, WIDTH), randn(5, 3, WIDTH, seed=5)
    with torch.set_grad_enabled(gradients):
        output, weights = attention(query, source, padding=padding, need_weights=need_weights)
    expected, expected_weights = naive(attention, query, source, padding, causal=False)
    torch.testing.assert_close(output, expected)
    if need_weights:
        torch.testing.assert_close(weights, expected_weights, check_dtype=False, rtol=1e-6, atol=1e-7)
    else:
        assert weights is None


@with_and_without_gradients
@pytest.mark.parametrize("padding", [None, PADDING[[0, 2, 2]]], ids=["full", "padded"])
@pytest.mark.parametrize("need_weights", [False, True], ids=["kernel", "weights"])
def test_causal_self_attention_is_the_textbook(padding: Tensor | None, need_weights: bool, gradients: bool) -> None:
    attention = build_attention()
    source = randn(5, 3, WIDTH)
    with torch.set_grad_enabled(gradients):
        output, _ = attention(source, source, padding=padding, causal=True, need_weights=need_weights)
    torch.testing.assert_close(output, naive(attention, source, source, padding, causal=True)[0], rtol=1e-6, atol=1e-6)


def test_gradients() -> None:
    attention = build_attention(bias=True, attend_encoder=True)
    query, source = randn(2, 2, WIDTH).requires_grad_(), randn(3, 2, WIDTH, seed=6).requires_grad_()
    padding = torch.tensor([[False, False, True], [False, False, False]])
    names, parameters = zip(*attention.named_parameters(), strict=True)

    def attend(query: Tensor, source: Tensor, *values: Tensor) -> Tensor:
        replaced = dict(zip(names, values, strict=True))
        return torch.func.functional_call(attention, replaced, (query, source), {"padding": padding})[0]

    leaves = [parameter.detach().clone().requires_grad_() for parameter in parameters]
    assert torch.autograd.gradcheck(attend, (query, source, *leaves))


def decode(attention: MultiheadAttention, source: Tensor) -> Tensor:
    """Self-attention position by position, T x B x C, each row a sentence of its own."""
    count = source.size(1)
    cache = DecodingCache(torch.zeros(1, count, WIDTH, dtype=source.dtype), None, torch.arange(count))
    steps = []
    for position in source:
        cache.begin_step()
        steps.append(attention.step(position[None], cache)[0])
    return torch.cat(steps)


def test_decoding_step_by_step_is_attending_at_once() -> None:
    attention = build_attention()
    source = randn(40, 2, WIDTH)  # longer than the room that is made at first
    torch.testing.assert_close(decode(attention, source), attention(source, source, causal=True)[0])


# --- relative positions ----------------------------------------------------------------------------------------------


def naive_relative(attention: MultiheadAttention, source: Tensor, causal: bool) -> Tensor:
    """Shaw et al., Eqs 3 and 4, with loops; one sentence, T x C."""
    tables = attention.relative_positions
    assert tables is not None
    length, size, far = source.size(0), WIDTH // HEADS, tables.max_distance
    q, k, v = (
        layer(source).detach()
        for layer in (attention.query_projection, attention.key_projection, attention.value_projection)
    )
    joined = torch.zeros(length, WIDTH, dtype=source.dtype)
    for h in range(HEADS):
        part = slice(h * size, (h + 1) * size)
        for i in range(length):
            seen = range(i + 1) if causal else range(length)
            row = {j: max(-far, min(far, j - i)) + far for j in seen}
            scores = {
                j: float(q[i, part] @ (k[j, part] + tables.key_table[row[j]].detach())) / math.sqrt(size) for j in seen
            }
            total = sum(math.exp(score) for score in scores.values())
            for j in seen:
                value = v[j, part] if tables.value_table is None else v[j, part] + tables.value_table[row[j]].detach()
                joined[i, part] += math.exp(scores[j]) / total * value
    return attention.output_projection(joined).detach()


@with_and_without_gradients
@pytest.mark.parametrize("value_term", [False, True], ids=["key", "key-value"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("need_weights", [False, True], ids=["kernel", "weights"])
def test_relative_positions_are_the_papers(value_term: bool, causal: bool, need_weights: bool, gradients: bool) -> None:
    attention = build_attention(max_distance=2, value_term=value_term)
    source = randn(6, 2, WIDTH)
    with torch.set_grad_enabled(gradients):
        output, _ = attention(source, source, causal=causal, need_weights=need_weights)
    for b in range(2):
        torch.testing.assert_close(output[:, b], naive_relative(attention, source[:, b], causal))
    if causal:
        torch.testing.assert_close(decode(attention, source), output)


@pytest.mark.parametrize("value_term", [False, True], ids=["key", "key-value"])
def test_gradients_of_relative_positions(value_term: bool) -> None:
    attention = build_attention(max_distance=1, value_term=value_term)
    source = randn(3, 2, WIDTH).requires_grad_()
    padding = torch.tensor([[False, False, True], [False, False, False]])
    tables = attention.relative_positions
    names, parameters = zip(*tables.named_parameters(prefix="relative_positions"), strict=True)

    def attend(source: Tensor, *values: Tensor) -> Tensor:
        replaced = dict(zip(names, values, strict=True))
        return torch.func.functional_call(attention, replaced, (source, source), {"padding": padding})[0]

    leaves = [parameter.detach().clone().requires_grad_() for parameter in parameters]
    assert torch.autograd.gradcheck(attend, (source, *leaves))


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
