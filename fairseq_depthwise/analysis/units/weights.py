"""How much each unit of a layer counts, and in which order they are: read from the parameters, without data."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fairseq_depthwise.models.mute.layers import MultiUnitEncoderLayer
from fairseq_depthwise.models.mute.order import penalty


@dataclass(frozen=True)
class LayerWeights:
    """The weights of a layer's units ("Multi-Unit Transformers", Sections 3.1, 3.3 and 5.8).

    Attributes:
        weights: alpha of Equation 10, I; with a learned order those of its places, Equation 15.
        coefficients: c, I: what each unit's output is multiplied by in the layer's sum. Without an order it is alpha.
        order: the unit at each place of the permutation nearest to M, both counted from 1; None without an order.
        distance: Frobenius distance of M from that permutation.
        penalty: Equation 19, 0 for a permutation.
    """

    weights: tuple[float, ...]
    coefficients: tuple[float, ...]
    order: tuple[int, ...] | None = None
    distance: float | None = None
    penalty: float | None = None


def weights_of(layer: MultiUnitEncoderLayer) -> LayerWeights:
    """Read them from a layer in evaluation mode, so that a hard order counts as in inference.

    Raises:
        UserError: the units have a learned order and scipy is not installed.
    """
    with torch.no_grad():
        weights = tuple(layer.unit_weights.tolist())
        if layer.order is None:
            return LayerWeights(weights, weights)
        order = tuple(unit + 1 for unit in layer.order.order())
        coefficients = tuple(layer.coefficients().tolist())
        return LayerWeights(weights, coefficients, order, layer.order.distance(), float(penalty(layer.order.matrix())))
