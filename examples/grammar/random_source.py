"""Reproducible random choices.

Only ``random.Random.random`` is used: its sequence for a seed is the same in all versions of Python, which the other
methods of the class do not promise.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


class RandomSource:
    """Random choices that depend on the seed alone."""

    def __init__(self, seed: int) -> None:
        self._generator = random.Random(seed)

    def below(self, limit: int) -> int:
        """Return a number from 0 to ``limit`` - 1."""
        return int(self._generator.random() * limit)

    def between(self, lowest: int, highest: int) -> int:
        """Return a number from ``lowest`` to ``highest``, both included."""
        return lowest + self.below(highest - lowest + 1)

    def chance(self, percent: int) -> bool:
        """Return True in ``percent`` of a hundred cases."""
        return self.below(100) < percent

    def choose(self, items: Sequence[Item]) -> Item:
        """Return one of ``items``, all equally likely."""
        return items[self.below(len(items))]

    def choose_weighted(self, weighted: Sequence[tuple[int, Item]]) -> Item:
        """Return one of the items; the numbers say how likely each is."""
        remaining = self.below(sum(weight for weight, _ in weighted))
        for weight, item in weighted:
            if remaining < weight:
                return item
            remaining -= weight
        raise AssertionError("the weights add up to more than their sum")
