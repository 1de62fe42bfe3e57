"""Seeded values and gradient checks for the tests of modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def randn(*shape: int, seed: int = 2) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def require_gradients(
    module: nn.Module, inputs: tuple[Tensor, ...], select: Callable[[Any], Any] = lambda output: output, **options: Any
) -> None:
    """Compare the gradients of inputs and parameters, in float64, with finite differences.

    ``select`` takes of what the module returns the tensors that are compared; ``options`` are its other arguments.
    """
    names, parameters = zip(*module.named_parameters(), strict=True)

    def compute(*values: Tensor) -> Any:
        given = dict(zip(names, values[len(inputs) :], strict=True))
        return select(torch.func.functional_call(module, given, values[: len(inputs)], options))

    leaves = [value.detach().clone().requires_grad_() for value in (*inputs, *parameters)]
    assert torch.autograd.gradcheck(compute, tuple(leaves))


class Factors(nn.Module):
    """Stands in for a layer's dropout: the n-th value it gets is multiplied by the n-th factor."""

    def __init__(self, *factors: float) -> None:
        super().__init__()
        self.factors = list(factors)

    def forward(self, values: Tensor) -> Tensor:
        return self.factors.pop(0) * values
