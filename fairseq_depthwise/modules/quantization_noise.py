"""Noise that prepares linear layers for product quantization after training.

Source: Fan et al.: "Training with Quantization Noise for Extreme Model Compression", Section 4. In every training
forward, random blocks of a weight count as zero, and the others are scaled up; the gradient reaches all entries as if
nothing had happened (straight-through).

fairseq's own wrapper writes the noise into the weights. Where no float32 master copy restores them, zeros and scale
pile up, fastest in gates that several layers share, and a recomputed layer sees other weights. Here weights are only
read.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class BlockNoise:
    """Stands in for a linear layer's ``forward``.

    Args:
        linear: its input width must be a multiple of ``block_size``.
        probability: of a block to count as zero in a training forward.
        block_size: neighboring input weights that are dropped together.
    """

    def __init__(self, linear: nn.Linear, probability: float, block_size: int) -> None:
        self.linear = linear
        self.probability = probability
        self.block_size = block_size

    def __call__(self, values: Tensor) -> Tensor:
        """Map ``values``, ... x in, to ... x out."""
        weight = self.linear.weight
        if self.linear.training:
            blocks = torch.rand(weight.size(0), weight.size(1) // self.block_size, device=weight.device)
            keep = (blocks >= self.probability).repeat_interleave(self.block_size, dim=1)
            noised = weight.detach() * keep / (1 - self.probability)
            weight = weight + (noised - weight.detach())
        return F.linear(values, weight, self.linear.bias)


def add_block_noise(linear: nn.Linear, probability: float, block_size: int) -> None:
    """Let ``linear`` compute with noise in training."""
    vars(linear)["forward"] = BlockNoise(linear, probability, block_size)  # of this object only, beside the class's
