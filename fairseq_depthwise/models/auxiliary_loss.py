"""What a model adds to the translation loss."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class AuxiliaryLoss(NamedTuple):
    """A penalty that a model offers to the criterion ``label_smoothed_cross_entropy_with_auxiliary``.

    Attributes:
        value: what is logged under its name; a scalar with a gradient.
        weight: what the value is multiplied with, for each target token, before it is added to the summed translation
            loss. The minimum then depends on neither the batch size, the accumulation nor the number of processes.
    """

    value: Tensor
    weight: float
