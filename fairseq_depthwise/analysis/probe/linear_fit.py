"""Least-squares linear approximation of a layer, in closed form from statistics accumulated over batches.

Source: "Transformer with Depth-Wise LSTM" (the first version of "Rewiring the Transformer with Depth-Wise LSTMs"),
Section 4, Equation 12, with the squared error as the distance. The statistics have a fixed size for data of any length.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

#: dtype of the matrix products -> ridge, relative to each feature's sum of squares. It exceeds the products' rounding
#: error, makes the solution unique (fewer positions than features, or dependent features), and hardly changes it.
RIDGES = {torch.float64: 1e-8, torch.float32: 1e-5}

#: Rounding error of a mean of equal numbers, in units in the last place.
_ROUNDING = 16


@dataclass(frozen=True)
class LinearFit:
    """``y = W x + b``, and its error.

    Attributes:
        weight: W, width x width, in float64.
        bias: b, width, in float64.
        error: squared error, mean over positions and features.
        unexplained: ``error`` divided by the variance of the outputs, that is 1 - R^2: 0 for an exactly linear layer, 1
            if predicting the mean is best.
        positions: number of positions that the layer was fitted on.
    """

    weight: Tensor
    bias: Tensor
    error: float
    unexplained: float
    positions: int


class LayerMoments:
    """Means and sums of products of a layer's inputs x and outputs y, of ``width`` features each, in float64.

    Each batch is centered, multiplied in ``precision``, and merged with the earlier ones by the formulas of Chan, Golub
    and LeVeque (1979), so that large means do not reduce the precision.
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
        #: X and Y are the centered inputs and outputs: X^T [X Y] (w x 2w), and the diagonal of Y^T Y (w).
        self.products = torch.zeros(width, 2 * width, dtype=torch.float64, device=device)
        self.squares = torch.zeros(width, dtype=torch.float64, device=device)

    def add(self, x: Tensor, y: Tensor) -> None:
        """Add the inputs x and outputs y of N positions, N x width each."""
        batch_count = len(x)
        xy = torch.cat([x, y], dim=1).to(self.precision)  # N x 2w
        batch_mean = xy.mean(dim=0, dtype=torch.float64)
        xy -= batch_mean.to(self.precision)
        products = xy[:, : self.width].t() @ xy
        squares = xy[:, self.width :].square().sum(dim=0)

        # The batch sums are about the batch mean; shift them to the common mean (Chan et al.).
        total = self.count + batch_count
        delta = batch_mean - self.mean
        scale = self.count * batch_count / total
        self.products += products.double()
        self.products.addr_(delta[: self.width], delta, alpha=scale)
        self.squares += squares.double() + delta[self.width :].square() * scale
        self.mean += delta * (batch_count / total)
        self.count = total

    def select_first_features(self, width: int) -> LayerMoments:
        """Return the moments of the first ``width`` features of x and of y."""
        part = LayerMoments(width, precision=self.precision, device=self.mean.device)
        columns = torch.cat([torch.arange(width), self.width + torch.arange(width)]).to(self.mean.device)
        part.count = self.count
        part.mean = self.mean[columns]
        part.products = self.products[:width, columns]
        part.squares = self.squares[:width].clone()
        return part

    def fit(self, ridge: float | None = None) -> LinearFit:
        """Return the linear layer with the least squared error.

        ``ridge``, relative to the sum of squares of each feature of x, is added to it, but not to the bias; None for
        that of :data:`RIDGES`.

        Raises:
            ValueError: a statistic is not finite.
        """
        if ridge is None:
            ridge = RIDGES[self.precision]
        xx, xy = self.products.split(self.width, dim=1)  # X^T X and X^T Y, w x w each
        if not (xx.isfinite().all() and xy.isfinite().all()):
            raise ValueError("a layer's input or output is not finite")
        mean_x, mean_y = self.mean.split(self.width)

        # A feature whose variation is within the rounding error of its mean is constant.
        sums_of_squares = xx.diagonal()
        squares_of_mean = self.count * mean_x.square()
        rounding = _ROUNDING * torch.finfo(self.precision).eps
        is_constant = sums_of_squares <= squares_of_mean * rounding**2

        # A constant feature gets the squares of its mean as its ridge, which pushes its weight to 0; one that is always
        # 0 gets 1, so that the matrix stays invertible.
        ridges = torch.where(is_constant, squares_of_mean, sums_of_squares * ridge)
        ridges[is_constant & (squares_of_mean == 0)] = 1

        # V, the transposed weight, solves (X^T X + ridges) V = X^T Y.
        weight_t = torch.linalg.solve(xx + ridges.diag(), xy)
        bias = mean_y - mean_x @ weight_t

        # |Y - X V|^2 = tr(Y^T Y) - 2 tr(V^T X^T Y) + tr(V^T X^T X V)
        total_squares = self.squares.sum()
        error = total_squares - 2 * (weight_t * xy).sum() + (weight_t * (xx @ weight_t)).sum()
        squared_error = float(error.clamp_min(0))
        unexplained = 0.0  # constant outputs are fitted exactly
        if total_squares:
            unexplained = squared_error / float(total_squares)
        return LinearFit(
            weight=weight_t.t().contiguous().cpu(),
            bias=bias.cpu(),
            error=squared_error / (self.count * self.width),
            unexplained=unexplained,
            positions=self.count,
        )
