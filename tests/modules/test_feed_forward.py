"""The feed-forward net against plain numbers: values, gradients, where it drops, how it starts."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from fairseq_depthwise.modules.feed_forward import ACTIVATIONS, FeedForward

WIDTH, HIDDEN = 4, 6

every_activation = pytest.mark.parametrize("activation", ACTIVATIONS)


def build(activation: str = "relu", dropout: float = 0.0) -> FeedForward:
    torch.manual_seed(1)
    net = FeedForward(embed_dim=WIDTH, hidden_dim=HIDDEN, activation=activation, activation_dropout=dropout).double()
    for name, parameter in net.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    return net


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def naive(net: FeedForward, vector: list[float], activation: str, factors: list[float] | None = None) -> list[float]:
    """``factors``: what dropout does to each value inside."""

    def linear(layer: nn.Linear, values: list[float]) -> list[float]:
        rows = zip(layer.weight.tolist(), layer.bias.tolist(), strict=True)
        return [sum(entry * value for entry, value in zip(row, values, strict=True)) + bias for row, bias in rows]

    def activated(value: float) -> float:
        return max(value, 0.0) if activation == "relu" else 0.5 * value * (1 + math.erf(value / math.sqrt(2)))

    inside = [activated(value) for value in linear(net.first, vector)]
    return linear(net.second, [value * factor for value, factor in zip(inside, factors or [1.0] * HIDDEN, strict=True)])


@every_activation
def test_is_the_equation_position_by_position(activation: str) -> None:
    net, values = build(activation), randn(3, 2, WIDTH)
    output = net(values)
    assert output.shape == values.shape
    for t in range(3):
        for b in range(2):
            assert output[t, b].tolist() == pytest.approx(naive(net, values[t, b].tolist(), activation), rel=1e-10)


@every_activation
def test_gradients(activation: str) -> None:
    net = build(activation)
    names, parameters = zip(*net.named_parameters(), strict=True)

    def compute(values: Tensor, *given: Tensor) -> Tensor:
        return torch.func.functional_call(net, dict(zip(names, given, strict=True)), (values,))

    leaves = [parameter.detach().clone().requires_grad_() for parameter in parameters]
    assert torch.autograd.gradcheck(compute, (randn(2, 2, WIDTH).requires_grad_(), *leaves))


@every_activation
def test_drops_between_activation_and_second_map_only(activation: str) -> None:
    """Each value inside is either dropped or doubled; the same draw tells which."""
    net, vector = build(activation, dropout=0.5).train(), randn(1, 1, WIDTH)
    seen = set()
    for seed in range(20):
        torch.manual_seed(seed)
        keep = net.activation_dropout.mask(torch.Size((1, 1, HIDDEN)), vector.device)
        torch.manual_seed(seed)
        output = net(vector)
        factors = [2.0 if kept else 0.0 for kept in keep.flatten().tolist()]
        expected = naive(net, vector.flatten().tolist(), activation, factors)
        assert output.flatten().tolist() == pytest.approx(expected, rel=1e-10)
        seen.add(tuple(factors))
    assert len(seen) > 10
    assert net.eval()(vector).flatten().tolist() == pytest.approx(naive(net, vector.flatten().tolist(), activation))


def test_starts_as_fairseqs() -> None:
    torch.manual_seed(1)
    net = FeedForward(embed_dim=64, hidden_dim=256)
    bound = math.sqrt(6 / (64 + 256))
    for linear in (net.first, net.second):
        assert linear.weight.abs().max() <= bound
        assert linear.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.03)
        assert not linear.bias.any()


@every_activation
def test_packed_for_generation_it_is_the_same(activation: str) -> None:
    net, values = build(activation).float(), randn(5, 3, WIDTH).float()
    with torch.no_grad():
        expected = net(values)
        net.make_generation_fast_(name="feed_forward")
        torch.testing.assert_close(net(values), expected)
    assert "forward" in vars(net.first)
    assert "forward" in vars(net.second)
