"""A weighted sum of outputs: of layers in the connections over depth, of units in the multi-unit layer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def weighted_sum(outputs: Sequence[Tensor] | Tensor, weights: Sequence[Tensor]) -> Tensor:
    """Compute ``sum_j w_j y_j``, T x B x d; weights are scalars, or T x B x 1."""
    total = outputs[0] * weights[0]
    for output, weight in zip(outputs[1:], weights[1:], strict=True):
        total = torch.addcmul(total, output, weight)
    return total
