"""fairseq gives its quantizer the trainer, but not its task."""

from __future__ import annotations

import functools
from typing import Any

from fairseq.trainer import Trainer


def give_tasks_their_trainer() -> None:
    """From now on a new trainer calls ``task.set_trainer(trainer)`` of a task that has such a method."""
    original = Trainer.__init__
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def initialise(self: Trainer, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if hasattr(self.task, "set_trainer"):
            self.task.set_trainer(self)

    Trainer.__init__ = initialise
