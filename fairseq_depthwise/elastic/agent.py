"""torchrun's agent, which starts, watches and ends the processes of a machine, with rules of ours for the end.

The launchers of all machines meet at a rendezvous; where a process dies, or a machine joins or leaves, they meet again
and start their processes anew, which go on from the last checkpoint.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from types import FrameType
from typing import Any, ClassVar

from fairseq import options as fairseq_options
from torch.distributed import run as torchrun
from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousError
from torch.distributed.launcher import api

from fairseq_compat import UserError
from fairseq_depthwise.elastic.rank import ELASTIC, PERMANENT, TRY_AGAIN

#: Seconds that the processes have to finish an update and to save when the launcher is to end; a scheduler that allows
#: less kills all of them. Where another machine joins it is PyTorch's 30: those that wait for a lost one never save.
GRACE = 240
LAST_CALL = 10  # seconds for which launchers wait for more machines once there are enough of them
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


def run(launch: argparse.Namespace, arguments: list[str]) -> int:
    """Train with options of fairseq-train, and return the exit status.

    That is 0, 1 for what only the user can change, 128 and a signal's number, 75 where other machines ended, or that of
    the process that failed once too often.
    """
    # What is wrong with the options is said once, and not in each process.
    sys.argv = ["fairseq-train", *arguments]  # which the parser looks at, too
    fairseq_options.parse_args_and_arch(fairseq_options.get_training_parser(), arguments)
    os.environ[ELASTIC] = str(os.getpid())
    # Processes are started with -m, and Python would run modules that lie in the current folder, such as a corpus.
    os.environ["PYTHONSAFEPATH"] = "1"
    # Processes of gloo that share the launchers' store do not find each other after a restart (PyTorch's #135712).
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    api.LocalElasticAgent = Agent  # type: ignore[misc]  # what torchrun has no option for
    listen()
    with tempfile.TemporaryDirectory(prefix="fairseq_depthwise_elastic_") as logs:
        command = [
            "--nproc-per-node", str(launch.processes), "--max-restarts", str(launch.max_restarts), "--log-dir", logs,
            "--nnodes", launch.nodes, "--rdzv-backend", "c10d", "--rdzv-endpoint", launch.rendezvous,
            "--rdzv-id", os.environ.get("SLURM_JOB_ID", "training"), "--rdzv-conf", f"last_call_timeout={LAST_CALL}",
            "-m", "fairseq_depthwise", "train", *arguments,
        ]  # fmt: skip
        try:
            torchrun.run(torchrun.parse_args(command))
            return 0
        except SignalException as error:
            number = Agent.signaled or error.sigval
            if number == signal.SIGINT:
                raise KeyboardInterrupt from None
            _say(f"ended by {signal.Signals(number).name}")
            return 128 + number
        except ChildFailedError as error:
            return _explain_failures(launch, error)
        except RendezvousError as error:
            _say(f"error: --rendezvous {launch.rendezvous} has ended or is not reached: {error!r}")
            return TRY_AGAIN


def _explain_failures(launch: argparse.Namespace, error: ChildFailedError) -> int:
    """Say why the processes failed once too often, and return the exit status, or raise what the user can change."""
    permanent = [failure for failure in error.failures.values() if failure.exitcode == PERMANENT]
    for failure in permanent:
        if isinstance(failure.message, dict):  # of record
            raise UserError(failure.message["message"].partition(": ")[2])
    if permanent:
        return 1  # the process has said why
    rank, status = Agent.first_failure or (error.get_first_failure()[0], error.get_first_failure()[1].exitcode)
    how = f"was ended by {signal.Signals(-status).name}" if status < 0 else "failed"
    _say(f"error: process {rank} {how}, and --max-restarts {launch.max_restarts} allows no more")
    return status if status > 0 else 128 - status


def _say(sentence: str) -> None:
    print(f"fairseq-depthwise: {sentence}; the same command goes on from the last checkpoint", file=sys.stderr)
