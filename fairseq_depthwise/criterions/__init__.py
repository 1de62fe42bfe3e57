"""Criterions: what is minimized. Importing them registers them."""

from . import label_smoothed_cross_entropy_with_auxiliary, linearization_probe  # noqa: F401  # registers
