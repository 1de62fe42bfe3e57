"""One function over a long stream by all cores: in order, with a bounded number of pieces in memory."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from typing import TypeVar

from fairseq_compat import UserError

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Items that travel to a process together.
CHUNK = 2000


def in_chunks(items: Iterable[Item], size: int = CHUNK) -> Iterator[list[Item]]:
    """Yield lists of at most ``size`` items."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def map_in_order(
    function: Callable[[list[Item]], Result], items: Iterable[Item], jobs: int, prepare: Callable[[], None]
) -> Iterator[Result]:
    """Yield ``function`` of each chunk of ``items``, in their order.

    Args:
        function: must be importable by another process.
        items: read only as far ahead as the processes need.
        jobs: processes; with 1, this one.
        prepare: called once before the first chunk; all processes have what it leaves in global variables.

    Raises:
        UserError: a process was killed.
    """
    prepare()
    if jobs <= 1:
        yield from map(function, in_chunks(items))
        return
    # Forked workers have what this process has prepared; nothing here has started a thread yet.
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_follow_parent) as pool:
        waiting: deque[Future[Result]] = deque()
        try:
            for chunk in in_chunks(items):
                waiting.append(pool.submit(function, chunk))
                if len(waiting) > 3 * jobs:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool:
            raise UserError(
                f"one of {jobs} processes was killed, for lack of memory perhaps; run the same command again, with "
                "JOBS=1 if it happens again"
            ) from None
        finally:
            for future in waiting:
                future.cancel()


def _follow_parent() -> None:
    """Leave Ctrl-C to the parent, and end this worker when the parent ends, be it by SIGKILL.

    A worker that stayed would keep its memory, and what its parent had locked.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
