"""Learning rate schedules and optimizers."""

from fairseq_depthwise.optim import fused_adam, inverse_sqrt_restart

__all__ = ["fused_adam", "inverse_sqrt_restart"]
