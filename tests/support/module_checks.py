"""Seeded values for the tests of modules."""

from __future__ import annotations

import torch
from torch import Tensor


def randn(*shape: int, seed: int = 2) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
