"""The linear layer with the least squared error to a layer, in closed form from sums over the data.

Source: "Transformer with Depth-Wise LSTM" (the first version of "Rewiring the Transformer with Depth-Wise LSTMs"),
Section 4, Equation 12, with the squared error as the distance. The sums have a fixed size for data of any length.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

#: Ridge that is added to the variance of each feature, as a share of it, by the precision of products, whose rounding
#: errors must be smaller. It makes the solution unique (with fewer positions than features, or dependent features) and
#: hardly changes it.
RIDGES = {torch.float64: 1e-8, torch.float32: 1e-5}

#: Rounding error of a mean of equal numbers, in units in the last place.
_ROUNDING = 16


@dataclass(frozen=True)
class LinearFit:
    """``y = W x + b``, W (width x width) and b (width) in float64, and its error.

    ``error`` is the mean over positions and features of the squared error, ``unexplained`` the same as a share of the
    outputs' variance: 0 for a linear layer, 1 for the mean alone.
    """

    weight: Tensor
    bias: Tensor
    error: float
    unexplained: float
    positions: int


class LayerMoments:
    """Means and co-moments of a layer's inputs x and outputs y, of ``width`` features each, in float64.

    Batches are multiplied in ``precision``: centered before, and combined with the pairwise formulas of Chan, Golub and
    LeVeque (1983), so that large means do not reduce the precision.
    """

    def __init__(
        self, width: int, *, precision: torch.dtype = torch.float64, device: torch.device | str = "cpu"
    ) -> None:
        self.width = width
        self.precision = precision
        #: Number of positions.
        self.count = 0
        #: Means of x and of y, concatenated (2w).
        self.mean = torch.zeros(2 * width, dtype=torch.float64, device=device)
        #: Centered sums: x'[x y] (w x 2w) and diag(y'y) (w).
        self.products = torch.zeros(width, 2 * width, dtype=torch.float64, device=device)
        self.squares = torch.zeros(width, dtype=torch.float64, device=device)

    def add(self, below: Tensor, above: Tensor) -> None:
        """Add positions: x and y, N x width each."""
        # The batch by itself, in the precision of products.
        both = torch.cat([below, above], dim=1).to(self.precision)  # N x 2w
        mean = both.mean(dim=0, dtype=torch.float64)
        both -= mean.to(self.precision)
        products = both[:, : self.width].t() @ both
        squares = both[:, self.width :].square().sum(dim=0)

        # Its sums are around its own mean: what lies between that and the mean so far is added.
        total = self.count + len(below)
        distance = mean - self.mean
        share = self.count * len(below) / total
        self.products += products.double()
        self.products.addr_(distance[: self.width], distance, alpha=share)
        self.squares += squares.double() + distance[self.width :].square() * share
        self.mean += distance * (len(below) / total)
        self.count = total

    def of_first(self, width: int) -> LayerMoments:
        """Return the moments of the first ``width`` features of x and of y."""
        part = LayerMoments(width, precision=self.precision, device=self.mean.device)
        columns = torch.cat([torch.arange(width), self.width + torch.arange(width)]).to(self.mean.device)
        part.count = self.count
        part.mean = self.mean[columns]
        part.products = self.products[:width, columns]
        part.squares = self.squares[:width].clone()
        return part

    def fit(self, ridge: float | None = None) -> LinearFit:
        """Return the linear layer with the least squared error; raise ValueError where a number is not finite.

        ``ridge`` is added to the variance of each feature of x, as a share of it, but not to the bias.
        """
        covariance, cross = self.products.split(self.width, dim=1)  # X'X and X'Y, w x w each
        if not (covariance.isfinite().all() and cross.isfinite().all()):
            raise ValueError("a layer's input or output is not finite")
        mean_below, mean_above = self.mean.split(self.width)

        # A feature whose variation is within the rounding error of its mean is constant; its weights become 0.
        variances = covariance.diagonal()
        levels = self.count * mean_below.square()
        is_constant = variances <= levels * (_ROUNDING * torch.finfo(self.precision).eps) ** 2
        ridges = torch.where(is_constant, levels, variances * (RIDGES[self.precision] if ridge is None else ridge))
        ridges[is_constant & (levels == 0)] = 1

        # V, the transposed weight, solves (X'X + ridges) V = X'Y.
        transposed = torch.linalg.solve(covariance + torch.diag(ridges), cross)
        bias = mean_above - mean_below @ transposed
        # |Y - X V|^2 = y'y - 2 tr(V' X'Y) + tr(V' X'X V)
        error = self.squares.sum() - 2 * (transposed * cross).sum() + (transposed * (covariance @ transposed)).sum()
        error = error.clamp_min(0)
        variance = float(self.squares.sum())
        return LinearFit(
            weight=transposed.t().contiguous().cpu(),
            bias=bias.cpu(),
            error=float(error) / (self.count * self.width),
            unexplained=float(error) / variance if variance else 0.0,
            positions=self.count,
        )
