"""Equation 21 over tokens and pairs, against loops."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from fairseq_depthwise.analysis.diversity import DiversitySum, LayerDiversitySums, UnitOutputs

UNITS, LENGTH, BATCH, WIDTH = 3, 5, 2, 4
PADDING = torch.tensor([[True, True, False, False, False], [False] * 5])


def diversity_by_loops(outputs: Tensor, include_self: bool) -> float:
    """``outputs``: U x N x C."""
    of_tokens = []
    for token in range(outputs.size(1)):
        cosines = []
        for i, j in itertools.product(range(len(outputs)), repeat=2):
            if i == j and not include_self:
                continue
            one, other = outputs[i, token].tolist(), outputs[j, token].tolist()
            product = sum(a * b for a, b in zip(one, other, strict=True))
            cosines.append(product / math.hypot(*one) / math.hypot(*other))
        of_tokens.append(sum(cosines) / len(cosines))
    return math.exp(-sum(of_tokens) / len(of_tokens))


def summed(outputs: Tensor, **options: bool) -> float | None:
    diversity = DiversitySum(**options)
    diversity.add(outputs)
    return diversity.value()


def outputs_of_a_layer() -> UnitOutputs:
    torch.manual_seed(1)
    return UnitOutputs(
        torch.rand(UNITS, BATCH, LENGTH, LENGTH), *(torch.randn(UNITS, LENGTH, BATCH, WIDTH) for _ in range(3))
    )


@pytest.mark.parametrize("include_self", [False, True])
def test_equals_loops_over_tokens_and_pairs(include_self: bool) -> None:
    torch.manual_seed(1)
    outputs = torch.randn(UNITS, 7, WIDTH) + 0.5
    assert summed(outputs, include_self=include_self) == pytest.approx(
        diversity_by_loops(outputs, include_self), rel=1e-6
    )


def test_values_that_are_known() -> None:
    one, other = torch.eye(2)[:, None]
    assert summed(torch.stack([one, 3 * one])) == pytest.approx(math.exp(-1))
    assert summed(torch.stack([one, other])) == pytest.approx(1)
    assert summed(torch.stack([one, -one])) == pytest.approx(math.e)
    assert summed(torch.stack([one, 0 * one])) == pytest.approx(1)


def test_padding_is_left_out_and_batches_add_up() -> None:
    outputs = outputs_of_a_layer()
    whole, parts = LayerDiversitySums(), LayerDiversitySums()
    whole.add(outputs, PADDING)
    for sentence in range(BATCH):
        only = slice(sentence, sentence + 1)
        part = UnitOutputs(
            outputs.attention_weights[:, only], outputs.attention_outputs[:, :, only],
            outputs.feed_forward_outputs[:, :, only], outputs.unit_outputs[:, :, only],
        )  # fmt: skip
        parts.add(part, PADDING[only])
    assert [diversity.tokens for diversity in whole.sums] == [8, 8, 8]
    assert whole.value() == pytest.approx(parts.value(), rel=1e-12)

    real = torch.cat([outputs.attention_outputs[:, 2:, 0], outputs.attention_outputs[:, :, 1]], dim=1)
    assert whole.value()[1] == pytest.approx(diversity_by_loops(real, False), rel=1e-6)
    real = torch.cat([outputs.attention_weights[:, 0, 2:], outputs.attention_weights[:, 1]], dim=1)
    assert whole.value()[0] == pytest.approx(diversity_by_loops(real, False), rel=1e-6)
