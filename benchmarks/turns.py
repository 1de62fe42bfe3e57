"""Taking turns: what is compared works round by round, so that a machine whose speed changes is as fast for all.

A work is a function of the round's number: a training step in this process (:func:`timed`), a question to another
process (:class:`Remote`), the start of a program. Its result is its seconds, or a dictionary with ``seconds`` in it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import torch
from program import prepare_process, tell

from fairseq_compat import UserError


class WorkFailedError(Exception):
    """A work that cannot go on; says why."""


def take_turns(
    works: dict[str, Callable[[int], Any]],
    *,
    rounds: int,
    warm_up: int = 0,
    title: str = "",
    failed: Callable[[str, str], None] | None = None,
) -> dict[str, list[Any]]:
    """Return the results of each work; entry i of every list belongs to round i.

    Args:
        works: name -> work. Each round begins with the next one, so that none always follows the same other one. A
            work that fails is taken out.
        rounds: rounds that count.
        warm_up: rounds before them, numbered below 0.
        title: of the progress lines; no title, no lines.
        failed: called with the name of a work that failed and why; without it the error is passed on.
    """
    results: dict[str, list[Any]] = {}
    for number in range(-warm_up, rounds):
        names = list(works)
        shift = number % len(names) if names else 0
        seconds = []
        for name in names[shift:] + names[:shift]:
            try:
                result = works[name](number)
            except WorkFailedError as error:
                if failed is None:
                    raise
                del works[name]
                results.pop(name, None)
                failed(name, str(error))
                continue
            seconds.append(f"{name} {result['seconds'] if isinstance(result, Mapping) else result:.4f} s")
            if number >= 0:
                results.setdefault(name, []).append(result)
        if title:
            which = "warm-up" if number < 0 else f"round {number + 1} of {rounds}"
            tell(f"{title}, {which}: {', '.join(seconds)}")
    return {name: results[name] for name in works if name in results}


def timed(work: Callable[[int], object], device: str = "cpu") -> Callable[[int], float]:
    """Return the work with its seconds as result."""

    def run(number: int) -> float:
        synchronize(device)
        begin = time.perf_counter()
        work(number)
        synchronize(device)
        return time.perf_counter() - begin

    return run


def synchronize(device: str) -> None:
    """Wait for a GPU."""
    if device == "cuda":
        torch.cuda.synchronize()


class Remote:
    """A process of its own that answers messages.

    Args:
        serve: what it does: a function of its end of the connection, and of ``given``; whatever it raises is an answer.
        given: further arguments.
    """

    #: A fresh interpreter, whose start and memory can be measured.
    start_method = "spawn"

    def __init__(self, serve: Callable[..., None], *given: Any) -> None:
        context: Any = multiprocessing.get_context(self.start_method)
        self._connection, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(serve, other, given), daemon=True)
        self.process.start()
        other.close()

    def ask(self, message: Any) -> Any:
        """Send a message and return the answer.

        Raises:
            WorkFailedError: the process ended, or something was raised in it.
        """
        with suppress(BrokenPipeError):  # there is no answer either
            self._connection.send(message)
        return self.answer()

    def answer(self) -> Any:
        """Wait for an answer; the first one comes without a question."""
        try:
            answer = self._connection.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            code = self.process.exitcode or 0
            if code == -signal.SIGKILL:
                raise WorkFailedError("its process was killed, as the system does where memory runs out") from None
            how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
            raise WorkFailedError(f"its process {how}") from None
        if isinstance(answer, WorkFailedError):
            raise answer
        return answer

    def close(self) -> None:
        """End the process, at once if it is in the middle of something."""
        self.process.kill()
        self.process.join()
        self._connection.close()


def _serve(serve: Callable[..., None], connection: Connection, given: Sequence[Any]) -> None:
    os.dup2(2, 1)  # whatever libraries print goes to stderr
    prepare_process()
    try:
        with suppress(EOFError):  # there are no more messages
            serve(connection, *given)
    except (Exception, SystemExit) as error:  # whatever it is, the others go on
        connection.send(WorkFailedError(reason_of(error)))


def reason_of(error: BaseException) -> str:
    """Return a sentence about what ended a process."""
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError) or any(word in text for word in ("can't allocate memory", "out of memory")):
        return f"too little memory: {text[:160] or type(error).__name__}"
    return text[:300] if isinstance(error, UserError) else f"{type(error).__name__}: {text[:300]}"


def ratios(numerators: Sequence[float], denominators: Sequence[float]) -> list[float]:
    """Return the ratios of two works, round by round."""
    return [first / second for first, second in zip(numerators, denominators, strict=True)]


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the lower quartile, the median and the upper quartile."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high
