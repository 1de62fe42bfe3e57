"""A kernel that has nothing to do with the project's: if it does not run, Triton is at fault."""

# mypy: allow-untyped-defs

import torch
import triton
import triton.language as tl

#: Major and minor version.
VERSION = tuple(int(number) for number in triton.__version__.split(".")[:2])


@triton.jit
def _add_up(values, total, steps):
    result = 0.0
    for index in range(steps):
        result += tl.load(values + index)
    tl.store(total, result)


def interpreted() -> bool:
    """Whether Triton's interpreter was chosen when it was imported."""
    return not isinstance(tl.sum, triton.JITFunction)


def add_up(values: torch.Tensor) -> float:
    """The sum of a vector."""
    total = torch.zeros(1, device=values.device)
    _add_up[(1,)](values, total, len(values))
    return float(total)
