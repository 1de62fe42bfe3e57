"""The part of torchrun that starts, watches and ends the processes of a machine, with rules of ours for the end."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from types import FrameType
from typing import Any, ClassVar

from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import SignalException

from fairseq_depthwise.elastic.rank import PERMANENT, TRY_AGAIN

#: Seconds that the processes have to finish an update and to save when the launcher is to end; a scheduler that allows
#: less kills all of them.
GRACE = 240.0

#: The same where another machine joins; processes that wait for one that is lost do not save.
GRACE_FOR_ANOTHER = 30.0

#: Signals that end a launcher, after its processes have saved.
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)


class Interruption:
    """The number of the signal that a launcher got; Ctrl-C after it, ``impatient``, ends its processes at once."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.impatient = False
        self._ignored: set[signal.Signals] | None = None

    def listen(self) -> None:
        """Handle the signals from now on, but for those that were ignored before, as with ``nohup``.

        PyTorch sets its own handlers whenever it starts processes.
        """
        if self._ignored is None:
            self._ignored = {number for number in SIGNALS if signal.getsignal(number) == signal.SIG_IGN}
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN if number in self._ignored else self._receive)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:
            self.impatient = self.impatient or number == signal.SIGINT
            return
        self.number = number
        raise SignalException(f"signal {number}", signal.SIGTERM)


#: Of this process, which has one launcher.
interruption = Interruption()


class Agent(LocalElasticAgent):
    """Starts processes again after a failure that may pass, and lets them save before they end where they can."""

    #: Rank and status of the process that ended first; the others are ended because of it.
    first_failure: ClassVar[tuple[int, int] | None] = None

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        # Ctrl-C reaches all processes of a terminal; what happens then is for the launcher to say.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            workers: dict[int, Any] = super()._start_workers(worker_group)
            interruption.listen()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return workers

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        statuses = {local: process.poll() for local, process in self._processes().items()}
        failed = {local: status for local, status in statuses.items() if status not in (None, 0, TRY_AGAIN)}
        if failed:
            local = min(failed, key=lambda local: failed[local])  # one that got a signal, before one that missed it
            type(self).first_failure = worker_group.workers[local].global_rank, failed[local]
            # The others wait for the one that is gone. Asked to end, as PyTorch does next, they may not hear it.
            self._end_processes(grace=0)
        result = super()._monitor_workers(worker_group)
        ends = {failure.exitcode for failure in result.failures.values()}
        if PERMANENT in ends:
            self._remaining_restarts = 0
        elif TRY_AGAIN in ends:
            self._remaining_restarts += 1  # a machine that leaves is no failure of this one
        return result

    def _restart_workers(self, worker_group: WorkerGroup) -> None:
        left, most = self._remaining_restarts, worker_group.spec.max_restarts
        print(f"training starts again from its last checkpoint; {left} of {most} restarts are left", file=sys.stderr)
        super()._restart_workers(worker_group)

    def _stop_workers(self, worker_group: WorkerGroup, *options: Any, **more: Any) -> None:
        if worker_group.state == WorkerState.HEALTHY:
            self._end_processes(GRACE_FOR_ANOTHER)
        super()._stop_workers(worker_group, *options, **more)

    def _shutdown(self, *options: Any, **more: Any) -> None:
        if interruption.number is not None:
            self._end_processes(GRACE)
        super()._shutdown(*options, **more)

    def _end_processes(self, grace: float) -> None:
        """Let the processes save and end; kill those that have not after so many seconds."""
        if grace:
            for process in self._living():
                process.send_signal(signal.SIGTERM)
        end = time.monotonic() + grace
        while self._living() and time.monotonic() < end and not interruption.impatient:
            time.sleep(0.05)
        for process in self._living():
            process.kill()

    def _living(self) -> list[subprocess.Popen[bytes]]:
        return [process for process in self._processes().values() if process.poll() is None]

    def _processes(self) -> dict[int, subprocess.Popen[bytes]]:
        """Return the processes of this machine by local rank."""
        handlers: dict[int, Any] = getattr(self._pcontext, "subprocess_handlers", {})
        return {local: handler.proc for local, handler in handlers.items()}
