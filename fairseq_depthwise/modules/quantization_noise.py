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


class BlockNoiseLinear(nn.Linear):
    """A linear layer that stands for another, with the same parameters, and computes with noise in training.

    Args:
        linear: for which it stands; its input width must be a multiple of ``block_size``.
        probability: of a block to count as zero in a training forward.
        block_size: neighboring input weights that are dropped together.
    """

    def __init__(self, linear: nn.Linear, probability: float, block_size: int) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight = linear.weight
        self.register_parameter("bias", linear.bias)
        self.probability = probability
        self.block_size = block_size

    def forward(self, values: Tensor) -> Tensor:
        """Compute ... x out from ``values``, ... x in."""
        weight: Tensor = self.weight
        if self.training:
            blocks = torch.rand(weight.size(0), weight.size(1) // self.block_size, device=weight.device)
            keep = (blocks >= self.probability).repeat_interleave(self.block_size, dim=1)
            noised = weight.detach() * keep / (1 - self.probability)
            weight = weight + (noised - weight.detach())
        return F.linear(values, weight, self.bias)


def add_block_noise(module: nn.Module, probability: float, block_size: int) -> None:
    """Let every linear layer in a module compute with noise in training."""
    for owner in list(module.modules()):
        for name, linear in list(owner.named_children()):
            if type(linear) is nn.Linear:
                setattr(owner, name, BlockNoiseLinear(linear, probability, block_size))
