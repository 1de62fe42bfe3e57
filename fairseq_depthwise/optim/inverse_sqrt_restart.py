"""``--lr-scheduler inverse_sqrt_restart``: fairseq's ``inverse_sqrt`` that can restart at its peak.

Without restarts it is ``inverse_sqrt``, whose options it has. Restarts come from ``--restart-updates``, or from a task
that grows the model during training.
"""

from dataclasses import dataclass, field
from typing import Any

from fairseq.optim.lr_scheduler import FairseqLRScheduler, register_lr_scheduler
from fairseq.optim.lr_scheduler.inverse_square_root_schedule import InverseSquareRootLRScheduleConfig

from fairseq_compat import UserError
from fairseq_depthwise.optim.restart_schedule import RESTARTS, parse_restarts, restarts_in, schedule_step


# fairseq reads these annotations at run time: no `from __future__ import annotations` here.
@dataclass
class InverseSqrtRestartConfig(InverseSquareRootLRScheduleConfig):
    """The options of stock ``inverse_sqrt``, and when to restart."""

    warmup_init_lr: float = field(
        default=-1, metadata={"help": "learning rate at the beginning of the warm-up; below 0 = start from 0"}
    )
    restart_updates: str = field(
        default="",
        metadata={
            "help": "restart after these numbers of updates, counted from the beginning of training and separated by "
            "commas: the rate returns to its peak, but an unfinished warm-up continues"
        },
    )


@register_lr_scheduler("inverse_sqrt_restart", dataclass=InverseSqrtRestartConfig)
class InverseSqrtRestartSchedule(FairseqLRScheduler):
    """Warm-up, decay by inverse square root, restarts; see :mod:`fairseq_depthwise.optim.restart_schedule`.

    Only counts are saved: which restarts were done, and where a warm start began. Peak and warm-up come from the
    options, so a run that is resumed with other options follows these.
    """

    #: Other schedulers whose trainings this one can resume.
    continues = ("inverse_sqrt",)

    def __init__(self, cfg: Any, optimizer: Any) -> None:
        super().__init__(cfg, optimizer)
        rates = list(cfg.lr)
        if len(rates) != 1:
            text = ",".join(map(str, rates))
            raise UserError(f"--lr {text!r} is not one learning rate; inverse_sqrt_restart needs one, its peak")
        if cfg.warmup_updates < 0:
            raise UserError(f"--warmup-updates {cfg.warmup_updates} is out of range; it must be at least 0")
        #: The rate at the end of the warm-up and at every restart.
        self.peak: float = rates[0]
        self._planned = parse_restarts(cfg.restart_updates)
        self._done: set[int] = set()
        self._start = 0
        #: The updates done so far; None if a checkpoint has no number, until fairseq passes one.
        self._updates: int | None = 0
        self.step_update(0)

    def restart(self, num_updates: int) -> float:
        """Restart now, and return the rate of the next update; again at the same update, nothing changes."""
        self._done.add(num_updates)
        return self.step_update(num_updates)

    def start_at(self, step: int) -> float:
        """Begin as if a trained model's schedule, which is at ``step``, restarted at update 0."""
        self._start = step
        return self.step_update(self._updates or 0)

    def step_update(self, num_updates: int) -> float:
        """Set the optimizer's rate for the update after ``num_updates`` updates, and return it."""
        # All planned restarts since the last call are due.
        last_updates = num_updates if self._updates is None else self._updates
        self._done.update(restart for restart in self._planned if last_updates <= restart <= num_updates)
        self._updates = max(last_updates, num_updates)
        step = schedule_step(num_updates, self._done, self.cfg.warmup_updates, self._start)
        initial_rate = max(self.cfg.warmup_init_lr, 0.0)
        new_rate = compute_rate(step, self.peak, self.cfg.warmup_updates, initial=initial_rate)
        self.optimizer.set_lr(new_rate)
        return new_rate

    def state_dict(self) -> dict[str, Any]:
        """Return fairseq's part, the restarts done so far, the updates, and a warm start's step."""
        return {
            **super().state_dict(),
            "start": self._start,
            RESTARTS: sorted(self._done),
            "updates": self._updates,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume from a checkpoint, also from one of stock ``inverse_sqrt``, which has no restarts.

        Restarts that were done remain. Of ``--restart-updates``, which may have changed since, only those count that
        are not before the checkpoint; a restart exactly at it still determines the next update.
        """
        super().load_state_dict(state_dict)
        self._start = state_dict.get("start", 0)
        self._done = set(restarts_in(state_dict))
        self._updates = state_dict.get("updates")


def compute_rate(step: int, peak: float, warmup: int, initial: float = 0.0) -> float:
    """Return the learning rate at step s: linear from ``initial`` to ``peak`` at W, then peak * sqrt(W / s).

    Without a warm-up (W = 0) the rate starts at its peak and decays as with W = 1.
    """
    if step < warmup:
        return initial + step * (peak - initial) / warmup
    # The quotient is exactly 1 at s = W, so that the rate is exactly the peak.
    return peak * (max(warmup, 1) / max(step, 1)) ** 0.5
