"""``--lr-scheduler inverse_sqrt_restart``: fairseq's ``inverse_sqrt`` that can restart at its peak.

Without restarts it is ``inverse_sqrt``, whose options it has. Restarts come from ``--restart-updates``, or from a task
that grows the model during training.
"""

from dataclasses import dataclass, field

from fairseq.optim.lr_scheduler import register_lr_scheduler

from fairseq_depthwise.optim.restarting_schedule import RestartingConfig, RestartingSchedule


# fairseq reads these annotations at run time: no `from __future__ import annotations` here.
@dataclass
class InverseSqrtRestartConfig(RestartingConfig):
    """The options of stock ``inverse_sqrt``, and when to restart."""

    warmup_init_lr: float = field(
        default=-1, metadata={"help": "learning rate at the beginning of the warm-up; below 0 = start from 0"}
    )


@register_lr_scheduler("inverse_sqrt_restart", dataclass=InverseSqrtRestartConfig)
class InverseSqrtRestartSchedule(RestartingSchedule):
    """Warm-up, decay by inverse square root, restarts."""

    continues = ("inverse_sqrt",)

    def rate(self, step: int) -> float:
        """Return the rate at step s: linear from its initial value to the peak at W, then peak * sqrt(W / s).

        Without a warm-up (W = 0) the rate starts at its peak and decays as with W = 1.
        """
        warmup: int = self.cfg.warmup_updates
        if step < warmup:
            initial = max(self.cfg.warmup_init_lr, 0.0)
            return initial + step * (self.peak - initial) / warmup
        # The quotient is exactly 1 at s = W, so that the rate is exactly the peak.
        return self.peak * (max(warmup, 1) / max(step, 1)) ** 0.5
