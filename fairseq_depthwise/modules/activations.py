"""The activations of feed-forward nets and of the depth-wise cell's hidden net."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

from fairseq_compat import UserError


class Activation(NamedTuple):
    """A function of a tensor, and whether it halves the width."""

    function: Callable[[Tensor], Tensor]
    halves: bool = False

    def width(self, width: int) -> int:
        """Return the width of the result."""
        return width // 2 if self.halves else width


#: Replaces an activation that halves in a net of one layer, which has no width to halve (Eq 5).
WITHOUT_HALVING = "gelu"

#: The values of ``--activation-fn`` and ``--depthwise-hidden-activation``.
ACTIVATIONS = {"glu": Activation(F.glu, halves=True), "gelu": Activation(F.gelu), "relu": Activation(F.relu)}


def require_even(activation: str, option: str, width: int) -> None:
    """Raise UserError if the activation halves this width of an option, and it is odd."""
    if ACTIVATIONS[activation].halves and width % 2:
        raise UserError(f"{option} {width} is odd; {activation} halves it, so give an even number")
