"""What may follow the norm in the cell's hidden net: the values of ``--depthwise-hidden-activation``."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor


class Activation(NamedTuple):
    """A function of a tensor, and whether its result has half the width."""

    function: Callable[[Tensor], Tensor]
    halves: bool = False

    def width(self, width: int) -> int:
        """Return the width of the result."""
        return width // 2 if self.halves else width


#: Name -> activation. Those that ``kernels/choice.py`` does not name are computed without Triton.
HIDDEN_ACTIVATIONS = {"glu": Activation(F.glu, halves=True), "gelu": Activation(F.gelu), "relu": Activation(F.relu)}

#: What takes the place of an activation that halves, where there is but one layer and nothing to halve (Eq 5).
WITHOUT_HALVING = "gelu"
