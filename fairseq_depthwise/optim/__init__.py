"""Learning rate schedules."""

from fairseq_depthwise.optim import inverse_sqrt_restart

__all__ = ["inverse_sqrt_restart"]
