"""Seeded values and gradient checks for the tests of modules."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def randn(*shape: int, seed: int = 2) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Factors(nn.Module):
    """Stands in for a layer's dropout: the n-th value it gets is multiplied by the n-th factor."""

    def __init__(self, *factors: float) -> None:
        super().__init__()
        self.factors = list(factors)

    def forward(self, values: Tensor) -> Tensor:
        return self.factors.pop(0) * values
