"""torchrun's agent, which starts, watches and ends the processes of a machine, with rules of ours for the end."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import Any, ClassVar

from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import SignalException

from fairseq_depthwise.elastic.rank import PERMANENT, TRY_AGAIN

#: Seconds that the processes have to finish an update and to save when the launcher is to end; a scheduler that allows
#: less kills all of them. Where another machine joins it is PyTorch's 30: those that wait for a lost one never save.
GRACE = 240
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)  # end a launcher whose processes have saved


class Agent(LocalElasticAgent):
    """Starts processes again after a failure that may pass, and lets them save before they end where they can."""

    signaled: ClassVar[int | None] = None  # by which signal first
    first_failure: ClassVar[tuple[int, int] | None] = None  # rank and status; the others are ended because of it
    _grace = GRACE
    _pcontext: Any  # PyTorch's, of the processes

    @classmethod
    def receive(cls, number: int, frame: FrameType | None) -> None:
        """End the launcher at its first signal; Ctrl-C after it ends the processes at once."""
        if cls.signaled is None:
            cls.signaled = number
            raise SignalException(f"signal {number}", signal.SIGTERM)
        if number == signal.SIGINT:
            cls._grace = 0
            raise KeyboardInterrupt

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        before = {number: signal.getsignal(number) for number in SIGNALS}
        workers: dict[int, Any] = super()._start_workers(worker_group)  # with handlers of PyTorch's own
        for number, handler in before.items():
            signal.signal(number, handler)
        return workers

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        statuses = {local: handler.proc.poll() for local, handler in self._pcontext.subprocess_handlers.items()}
        failed = {local: status for local, status in statuses.items() if status not in (None, 0, TRY_AGAIN)}
        if failed:
            local = min(failed, key=lambda local: failed[local])  # one that got a signal, before one that missed it
            type(self).first_failure = worker_group.workers[local].global_rank, failed[local]
            # The others wait for the one that is gone. Asked to end, as PyTorch does next, they may not hear it.
            self._pcontext.close(signal.SIGKILL)
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

    def _shutdown(self, *options: Any, **more: Any) -> None:
        if self._pcontext is not None and self.signaled is not None:
            self._pcontext.close(signal.SIGTERM, self._grace)
        super()._shutdown(*options, **more)


def listen() -> None:
    """Handle the signals, but for those that are ignored, as with ``nohup``."""
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, Agent.receive)
