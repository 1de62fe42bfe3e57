"""Restarts of a learning rate schedule, whatever its rate: the step of its rate, the option, what checkpoints record.

Source: "Shallow-to-Deep Training for Neural Machine Translation", Section 4.3. What follows a stage that ends within
the warm-up is not in the paper, but in the authors' program.

Updates are counted through all stages of a training. A schedule computes its rate from a step s
(:class:`RestartingSchedule`). Every update advances s by 1, and a restart sets it to min(s, W), where W is the length
of the warm-up: an unfinished warm-up continues, otherwise the rate returns to its peak.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from itertools import pairwise
from typing import Any

from fairseq_compat import UserError

#: The entry of a saved schedule with the updates after which it restarted, in order.
RESTARTS = "restarts"


def restarts_in(saved: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the updates after which a saved schedule restarted; none for schedules without restarts."""
    return tuple(saved.get(RESTARTS) or ())


def add_restart(saved: MutableMapping[str, Any], num_updates: int) -> None:
    """Let a saved schedule restart after ``num_updates`` updates; schedules without restarts ignore it."""
    saved[RESTARTS] = sorted({*restarts_in(saved), num_updates})


def schedule_step(updates: int, restarts: Iterable[int], warmup: int, start: int = 0) -> int:
    """Return the schedule's step s after ``updates`` updates, which determines the rate of the next update.

    Restarts that lie ahead have no effect yet; ``start``, like a restart, leads no further than W = ``warmup``.
    """
    # A restart at r sets s - updates to min(s - updates, W - r), so only the latest restart counts; the start is like a
    # restart at 0.
    latest = max((restart for restart in restarts if restart <= updates), default=0)
    return updates + min(start, warmup - latest)


def parse_restarts(text: str) -> tuple[int, ...]:
    """Parse the numbers of updates in ``--restart-updates``; none if it is empty."""
    if not text.strip():
        return ()

    restarts: list[int] = []
    for part in text.split(","):
        # 0 is no restart, and is refused below together with what is not a number.
        restarts.append(int(part) if part.strip().isdecimal() else 0)
    if any(later <= earlier for earlier, later in pairwise([0, *restarts])):
        raise UserError(f"--restart-updates {text!r} must be growing whole numbers of updates, such as 8000,16000")
    return tuple(restarts)
