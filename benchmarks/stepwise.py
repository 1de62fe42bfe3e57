"""A training command as a process that makes an update whenever it is asked to, for :mod:`turns`.

What an update takes is everything that fairseq does from one to the next: the update, growth, fetching and logging.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from turns import Remote


class StepwiseTraining(Remote):
    """The runner's end of a training that makes one update at a time.

    Args:
        arguments: of ``fairseq-depthwise``.
        log: where the process writes what it prints; it works in the log's folder.
    """

    start_method = "forkserver"  # fairseq is imported once, by the server

    def __init__(self, arguments: list[str], log: Path) -> None:
        multiprocessing.set_forkserver_preload(["fairseq_depthwise.cli", "fairseq.trainer"])
        super().__init__(serve, arguments, log.absolute())

    def update(self, _: int = 0) -> float:
        """Have an update made and return its seconds."""
        begin = time.perf_counter()
        self.ask("update")
        return time.perf_counter() - begin


def serve(connection: Connection, arguments: list[str], log: Path) -> None:
    """Run a command whose trainer waits before each update until it is asked, and answers when it is ready for it."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.chdir(log.parent)
    if hasattr(os, "sched_setaffinity"):
        # The same core for all, since something else may be running on one of them.
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    from fairseq.trainer import Trainer

    from fairseq_depthwise.cli import main

    train_step = Trainer.train_step

    def in_turn(trainer: Trainer, *given: Any, **named: Any) -> Any:
        connection.send("ready")
        connection.recv()
        return train_step(trainer, *given, **named)

    Trainer.train_step = in_turn
    status = main(arguments)
    if status != 0:
        raise SystemExit(f"it ended with {status}")
    connection.send("finished")
