"""Running the layers of a stack: which of them, and how their activations are kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Stack(Protocol):
    """An encoder or a decoder."""

    layers: nn.ModuleList
    layerdrop: float
    training: bool


def layers_to_run(stack: Stack) -> Iterator[tuple[int, nn.Module, bool]]:
    """Number, layer, and whether it is kept; in training, LayerDrop (Fan et al. 2020) passes some by."""
    kept = [True] * len(stack.layers)
    if stack.layerdrop and stack.training:
        kept = (torch.rand(len(stack.layers)) > stack.layerdrop).tolist()
    return zip(range(len(stack.layers)), stack.layers, kept, strict=True)


def run_layer(layer: nn.Module, *args: Any, recompute: bool, **kwargs: Any) -> Any:
    """Call a layer; with ``recompute`` keep only its input and compute the rest again in the backward pass."""
    if recompute:
        return checkpoint(layer, *args, use_reentrant=False, **kwargs)
    return layer(*args, **kwargs)
