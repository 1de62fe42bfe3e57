"""Worker processes that are noticed when they are lost, and that leave Ctrl-C to the main process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import MappingProxyType
from typing import Any

from fairseq_compat.errors import UserError


class Workers:
    """Worker processes with the methods of ``multiprocessing.Pool`` that fairseq uses; a lost worker is an error."""

    def __init__(self, processes: int) -> None:
        self._executor = ProcessPoolExecutor(processes, initializer=_begin_worker)

    def apply_async(
        self, function: Callable[..., Any], args: Sequence[Any] = (), kwds: Mapping[str, Any] = MappingProxyType({})
    ) -> Result:
        """Compute a function in one of the processes."""
        return Result(self._executor.submit(function, *args, **kwds))

    def close(self) -> None:
        """Do nothing; fairseq calls :meth:`join` next."""

    def join(self) -> None:
        """Wait until all results are computed; a command that is interrupted meanwhile ends its processes."""
        try:
            self._executor.shutdown()
        except BaseException:
            # Otherwise Python waits for them at its exit.
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def _begin_worker() -> None:
    """Leave Ctrl-C to the main process, and end when that has ended, even if it was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # from a thread, sys.exit would end only that


class Result:
    """The result of a function that a worker computes."""

    def __init__(self, future: Future[Any]) -> None:
        self._future = future

    def get(self) -> Any:
        """Wait for the result and return it.

        Raises:
            UserError: a worker process was killed.
        """
        try:
            return self._future.result()
        except BrokenProcessPool:
            raise UserError(
                "one of the --workers was killed, perhaps for lack of memory; give fewer, and start again"
            ) from None
