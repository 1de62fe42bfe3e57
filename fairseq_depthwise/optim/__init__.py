"""Learning rate schedules and optimizers. Importing them registers them."""

from . import fused_adam, inverse_sqrt_restart  # noqa: F401  # registers
