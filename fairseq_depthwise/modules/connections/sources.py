"""Sums over what the layers below have left, and the names of these sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class StreamAndOutputs(NamedTuple):
    """What the next layer reads, or within a block its stream, and what can be read again: T x B x d each.

    ``outputs``: the embedding and the output of each layer, or y_0 to y_b of the blocks, so far.
    """

    stream: Tensor
    outputs: tuple[Tensor, ...]


def source_names(count: int, part: str = "layer", units: int = 1) -> list[str]:
    """Return the names of ``count`` sources: "embedding", "layer 1", ...; of sub-layers "layer 1a", "layer 1b", ..."""
    letters = "abc"[:units] if units > 1 else ("",)
    return ["embedding", *(f"{part} {number // units + 1}{letters[number % units]}" for number in range(count - 1))]


def weighted_sum(outputs: Sequence[Tensor] | Tensor, weights: Sequence[Tensor]) -> Tensor:
    """Compute ``sum_j w_j y_j``, T x B x d; weights are scalars, or T x B x 1."""
    total = outputs[0] * weights[0]
    for output, weight in zip(outputs[1:], weights[1:], strict=True):
        total = torch.addcmul(total, output, weight)
    return total


def weighted_parts(outputs: Sequence[Tensor], weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the terms of :func:`weighted_sum` by name; weights are scalars, or T x B."""
    parts = zip(weights.items(), outputs, strict=True)
    return {name: weight.unsqueeze(-1) * output for (name, weight), output in parts}
