"""fairseq's training commands update by update in turns, so that a machine whose speed changes is as fast for each.

Each command is its own process. They hand a token round in a ring of pipes: who has it makes one update, and the
others wait, all on one core. A process writes how long each of its turns took into its log: everything that fairseq
does from one update to the next (the update, growth, fetching and logging), without the waiting.

    python benchmarks/taking_turns.py train data-bin --arch ...      (with its ends of the pipes in the environment)
"""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fairseq_compat import UserError

#: What to start in the place of ``fairseq-depthwise``.
PROGRAM = Path(__file__).resolve()

#: What a process says when one that it waits for has failed.
OTHER_ENDED = "another training of the ring has ended before its time; see its log"

#: The environment variable with the two ends of pipes that a process of the ring has: its own and the next one's.
_ENDS = "TAKING_TURNS"

_TURN = re.compile(r"turn (\d+) took ([\d.]+) s")


def turns(log: str) -> list[float]:
    """Seconds of each turn of a training, from its log.

    Raises:
        UserError: a turn is missing.
    """
    found = [(int(number), float(seconds)) for number, seconds in _TURN.findall(log)]
    if not found or [number for number, _ in found] != list(range(1, len(found) + 1)):
        raise UserError("a training's log does not have all of its turns; give another --work")
    return [seconds for _, seconds in found]


@contextmanager
def ring(size: int) -> Iterator[list[tuple[int, int]]]:
    """Pipes from each of ``size`` processes to the next; one token is on its way to the first.

    Yields:
        for each process the end to read its token from and the end to hand it on. They are closed here afterwards:
        leave the block as soon as the processes have them, so that the ring ends when one of them does.
    """
    pipes = [os.pipe() for _ in range(size)]
    os.write(pipes[0][1], b".")
    try:
        yield [(pipes[place][0], pipes[(place + 1) % size][1]) for place in range(size)]
    finally:
        for end in (end for pipe in pipes for end in pipe):
            os.close(end)


def environment_of(ends: Sequence[int]) -> dict[str, str]:
    """What a process of the ring has in its environment, besides the ends themselves."""
    return {_ENDS: ",".join(map(str, ends))}


class Turns:
    """A process's place in the ring.

    Args:
        own: the end of the pipe from which the token comes.
        next: the end where it is handed on.
    """

    def __init__(self, own: int, next: int) -> None:
        self._own, self._next = own, next
        self._number = 0
        self._began = 0.0

    def begin(self) -> None:
        """End the turn before, if there was one, and wait for the next."""
        if self._number == 0:
            if hasattr(os, "sched_setaffinity"):
                # The same core for all, since something else may be running on one of them.
                os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
            # One round without work: the token is back when everybody is there.
            self._wait()
            self._hand_on()
        else:
            self.end()
        self._wait()
        self._number += 1
        self._began = time.perf_counter()

    def end(self) -> None:
        """Log the time of the turn and hand the token on."""
        seconds = time.perf_counter() - self._began
        logging.getLogger(__name__).info("turn %d took %.6f s", self._number, seconds)
        self._hand_on()

    def _wait(self) -> None:
        if not os.read(self._own, 1):
            raise UserError(OTHER_ENDED)

    def _hand_on(self) -> None:
        with suppress(BrokenPipeError):  # the next process has made all its updates
            os.write(self._next, b".")


def main(arguments: list[str]) -> int:
    """Run a command of fairseq-depthwise whose trainer waits for its turn before each update."""
    from fairseq.trainer import Trainer

    from fairseq_depthwise.cli import main as run

    mine = Turns(*map(int, os.environ[_ENDS].split(",")))
    train_step = Trainer.train_step

    def in_turn(trainer: Trainer, *given: Any, **named: Any) -> Any:
        mine.begin()
        return train_step(trainer, *given, **named)

    Trainer.train_step = in_turn
    status = run(arguments)
    if status == 0:
        mine.end()
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
