"""Dropout with masks that are cheap to draw on a CPU."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: 16 random bits decide a mask entry, so probabilities are multiples of 2 to the -16.
_STEPS = 2**16


def draw_keep_mask(shape: torch.Size, probability: float, device: torch.device) -> Tensor:
    """Draw a boolean mask that is False with ``probability``, from torch's generator.

    On a CPU PyTorch draws Bernoulli numbers one by one, which took 5 to 8% of a training step. Here every draw of 64
    bits decides four entries.
    """
    if device.type != "cpu":
        return torch.empty(shape, dtype=torch.bool, device=device).bernoulli_(1 - probability)
    count = shape.numel()
    bits = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    # Numbers of 16 bits are from -2**15 to 2**15 - 1. A threshold of 2**15 is impossible, so probabilities close to 1
    # keep 2 to the -16 of the entries.
    threshold = min(round(probability * _STEPS), _STEPS - 1) - _STEPS // 2
    return bits.view(torch.int16)[:count].view(shape) >= threshold


class Dropout(nn.Module):
    """Zero entries with a probability (below 1) and scale the others by 1 / (1 - probability), in training."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability
        self.at_inference = False

    @property
    def active(self) -> bool:
        """Whether anything is dropped now."""
        return self.probability > 0 and (self.training or self.at_inference)

    def forward(self, values: Tensor) -> Tensor:
        """Apply dropout to a tensor of any shape."""
        if not self.active:
            return values
        if values.device.type != "cpu":
            return F.dropout(values, self.probability)
        # As bytes, because a CPU takes several times as long to multiply by booleans, here and in the backward pass.
        mask = draw_keep_mask(values.shape, self.probability, values.device).view(torch.uint8)
        return (values * mask).mul_(1 / (1 - self.probability))

    def make_generation_fast_(
        self, name: str, retain_dropout: bool = False, retain_dropout_modules: list[str] | None = None, **_: Any
    ) -> None:
        """Apply dropout during generation, too, with ``--retain-dropout`` (fairseq's hook).

        ``--retain-dropout-modules decoder encoder.embedding`` limits it to these modules and what is inside them.
        """
        is_named = retain_dropout_modules is None
        for module in retain_dropout_modules or ():
            if name == module or name.startswith(f"{module}."):
                is_named = True
        self.at_inference = retain_dropout and is_named

    def extra_repr(self) -> str:
        return f"{self.probability:g}"
