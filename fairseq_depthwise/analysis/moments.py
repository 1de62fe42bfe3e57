"""Mean and standard deviation of values that come in parts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class MeanDeviation:
    """Mean and population standard deviation (squares are divided by n)."""

    mean: float
    deviation: float


class RunningMoments:
    """Sums of values that come in parts, in float64.

    Squared differences from the mean are combined as by Chan, Golub and LeVeque ("Updating Formulae and a Pairwise
    Algorithm for Computing Sample Variances", 1979), which is exact for small deviations from a large mean.
    """

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self._squares = 0.0

    def add(self, values: Tensor) -> None:
        """Add values of any shape."""
        if not values.numel():
            return
        values = values.double()
        mean = float(values.mean())
        count = self.count + values.numel()
        distance = mean - self.mean
        self._squares += float((values - mean).square().sum())
        self._squares += distance**2 * self.count * values.numel() / count
        self.mean += distance * values.numel() / count
        self.count = count

    @property
    def deviation(self) -> float:
        """Standard deviation; NaN before the first value."""
        return math.sqrt(self._squares / self.count) if self.count else math.nan

    def value(self) -> MeanDeviation:
        """Return mean and deviation."""
        return MeanDeviation(self.mean, self.deviation)
