"""The base of learning rate schedules that restart: at given updates, or when the model grows during training.

A schedule of its own is a subclass with a ``rate`` and a name, such as ``inverse_sqrt_restart.py``. When its steps
restart is in :mod:`fairseq_depthwise.optim.restarts`.
"""

from dataclasses import dataclass, field
from typing import Any

from fairseq.dataclass import FairseqDataclass
from fairseq.optim.lr_scheduler import FairseqLRScheduler
from omegaconf import II

from fairseq_compat import UserError
from fairseq_depthwise.optim.restarts import RESTARTS, parse_restarts, restarts_in, schedule_step


# fairseq reads these annotations at run time: no `from __future__ import annotations` here.
@dataclass
class RestartingConfig(FairseqDataclass):
    """The options of every schedule with restarts: warm-up, restarts, and the peak (``--lr``)."""

    warmup_updates: int = field(default=4000, metadata={"help": "updates of the warm-up, at whose end is the peak"})
    restart_updates: str = field(
        default="",
        metadata={
            "help": "restart after these numbers of updates, counted from the beginning of training and separated by "
            "commas: the rate returns to its peak, but an unfinished warm-up continues"
        },
    )
    lr: list[float] = II("optimization.lr")  # noqa: RUF009  # a string: omegaconf puts the other option's value there


class RestartingSchedule(FairseqLRScheduler):
    """A schedule that restarts; growth restarts it, too, and a warm start starts it.

    Only counts are saved: which restarts were done, and where a warm start began. Peak and warm-up come from the
    options, so a run that is resumed with other options follows these. Loading a state restarts after the updates in
    its entry :data:`RESTARTS`: a model that is grown as a file gets its restart from :func:`restarts.add_restart`.
    """

    #: Other schedulers whose trainings this one can resume.
    continues: tuple[str, ...] = ()

    def __init__(self, cfg: Any, optimizer: Any) -> None:
        super().__init__(cfg, optimizer)
        rates = list(cfg.lr)
        if len(rates) != 1:
            text = ",".join(map(str, rates))
            raise UserError(f"--lr {text!r} is not one learning rate; --lr-scheduler {cfg._name} needs one, its peak")
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

    def rate(self, step: int) -> float:
        """Return the learning rate at step s, from :attr:`peak` and the options in ``cfg``."""
        raise NotImplementedError  # abstract: each schedule has its own

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
        new_rate = self.rate(step)
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
        """Resume from a checkpoint, also from one of a schedule that has no restarts.

        Restarts that were done remain. Of ``--restart-updates``, which may have changed since, only those count that
        are not before the checkpoint; a restart exactly at it still determines the next update.
        """
        super().load_state_dict(state_dict)
        self._start = state_dict.get("start", 0)
        self._done = set(restarts_in(state_dict))
        self._updates = state_dict.get("updates")
