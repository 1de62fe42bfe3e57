"""Dropout: how much is dropped, how it is scaled, what decides the masks, and when."""

from __future__ import annotations

import math

import pytest
import torch

from fairseq_depthwise.modules.dropout import Dropout, draw_keep_mask

CPU = torch.device("cpu")


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_as_much_is_dropped_as_asked_and_the_rest_is_scaled(probability: float) -> None:
    torch.manual_seed(1)
    values = (torch.rand(401, 1003) + 1).requires_grad_()
    dropped = Dropout(probability).train()(values)
    dropped.sum().backward()
    torch.testing.assert_close(values.grad, (dropped != 0) / (1 - probability))
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], values[kept] / (1 - probability))
    deviation = math.sqrt(probability * (1 - probability) / values.numel())
    assert abs((~kept).float().mean() - probability) < 4 * deviation
    torch.testing.assert_close(dropped.mean(), values.mean(), rtol=0.02, atol=0)


def test_entries_are_decided_one_by_one() -> None:
    """Four entries share one draw of 64 bits; neighbors must still be independent."""
    torch.manual_seed(2)
    keep = draw_keep_mask(torch.Size((200_000, 4)), 0.3, CPU).double() - 0.7
    correlation = (keep.T @ keep) / len(keep) / 0.21
    assert (correlation - torch.eye(4)).abs().max() < 0.02
    assert (keep[1:] * keep[:-1]).mean().abs() < 0.005


@pytest.mark.parametrize(("probability", "training"), [(0.5, False), (0.0, True), (0.0, False)])
def test_nothing_happens_in_evaluation_or_at_probability_0(probability: float, training: bool) -> None:
    layer, values = Dropout(probability).train(training), torch.randn(3, 4)
    before = torch.get_rng_state()
    assert layer(values) is values
    assert not layer.active
    assert torch.equal(torch.get_rng_state(), before)


def test_probabilities_next_to_1_drop_nearly_all() -> None:
    """Not none: the threshold that decides is a 16-bit number."""
    torch.manual_seed(3)
    for probability in (0.9999, 0.999995, 1 - 1e-9):
        assert draw_keep_mask(torch.Size((100_000,)), probability, CPU).float().mean() < 1e-3
