"""torchrun's agent, which starts, monitors and ends the processes of one machine, with our own rules for ending them.

The launchers of all machines meet at a rendezvous. When a process dies, or a machine joins or leaves, they meet again
and restart their processes, which resume from the last checkpoint.
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
#: less kills all of them. When another machine joins, the time is PyTorch's 30 seconds: processes that wait for a lost
#: one never save.
GRACE = 240

#: Seconds for which launchers wait for more machines once there are enough of them.
LAST_CALL = 10

#: The signals that end a launcher once its processes have saved.
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)


class Agent(LocalElasticAgent):
    """Restarts processes after a failure that may be temporary, and lets them save before they end where possible."""

    #: The first signal received.
    signaled: ClassVar[int | None] = None

    #: Rank and exit status of the first process that failed; the others are ended because of it.
    first_failure: ClassVar[tuple[int, int] | None] = None

    _grace = GRACE

    #: PyTorch's handle of the processes.
    _pcontext: Any

    @classmethod
    def receive(cls, number: int, frame: FrameType | None) -> None:
        """End the launcher at its first signal; Ctrl-C after it ends the processes at once."""
        if cls.signaled is None:
            cls.signaled = number
            # PyTorch passes SIGTERM on, whichever signal the launcher received.
            raise SignalException(f"signal {number}", signal.SIGTERM)
        if number == signal.SIGINT:
            cls._grace = 0
            raise KeyboardInterrupt

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        # PyTorch installs signal handlers while it starts processes; ours take their places again.
        handlers = {number: signal.getsignal(number) for number in SIGNALS}
        workers: dict[int, Any] = super()._start_workers(worker_group)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        return workers

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        failed: dict[int, int] = {}
        for local_rank, handler in self._pcontext.subprocess_handlers.items():
            status = handler.proc.poll()
            if status not in (None, 0, TRY_AGAIN):
                failed[local_rank] = status

        if failed:
            # A process killed by a signal (negative status) is the cause; others then fail because they miss it.
            first = min(failed, key=lambda local_rank: failed[local_rank])
            type(self).first_failure = worker_group.workers[first].global_rank, failed[first]
            # The others wait for the lost process, and might not react to SIGTERM, which PyTorch would send next.
            self._pcontext.close(signal.SIGKILL)

        result = super()._monitor_workers(worker_group)
        statuses = {failure.exitcode for failure in result.failures.values()}
        if PERMANENT in statuses:
            self._remaining_restarts = 0
        elif TRY_AGAIN in statuses:
            # Another machine left. That is no failure of this one, so the restart is not counted.
            self._remaining_restarts += 1
        return result

    def _restart_workers(self, worker_group: WorkerGroup) -> None:
        remaining, allowed = self._remaining_restarts, worker_group.spec.max_restarts
        print(
            f"training restarts from its last checkpoint; {remaining} of {allowed} restarts are left", file=sys.stderr
        )
        super()._restart_workers(worker_group)

    def _shutdown(self, *args: Any, **kwargs: Any) -> None:
        if self._pcontext is not None and self.signaled is not None:
            self._pcontext.close(signal.SIGTERM, self._grace)
        super()._shutdown(*args, **kwargs)


def install_signal_handlers() -> None:
    """Install the handlers of the signals, except for ignored ones (``nohup`` ignores SIGHUP)."""
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, Agent.receive)


def run(launch: argparse.Namespace, arguments: list[str]) -> int:
    """Train with options of fairseq-train, and return the exit status.

    It is 0 after success, 1 for errors that only the user can fix, 128 plus the number of a signal, 75 if other
    machines ended, or the status of the process whose failure exceeded ``--max-restarts``.
    """
    # Wrong options are reported here, once, and not by each process. The parser also reads sys.argv.
    sys.argv = ["fairseq-train", *arguments]
    fairseq_options.parse_args_and_arch(fairseq_options.get_training_parser(), arguments)

    os.environ[ELASTIC] = str(os.getpid())
    # Processes are started with -m, and Python would run modules that lie in the current folder, such as a corpus.
    os.environ["PYTHONSAFEPATH"] = "1"
    # gloo processes that share the launchers' store do not find each other after a restart (PyTorch issue 135712).
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    # torchrun has no option for the class of its agent. mypy allows no assignment to a class.
    api.LocalElasticAgent = Agent  # type: ignore[misc]
    install_signal_handlers()

    with tempfile.TemporaryDirectory(prefix="fairseq_depthwise_elastic_") as logs:
        try:
            torchrun.run(torchrun.parse_args(_torchrun_command(launch, arguments, logs)))
            return 0
        except SignalException as error:
            number = Agent.signaled or error.sigval
            if number == signal.SIGINT:
                raise KeyboardInterrupt from None
            _report(f"ended by {signal.Signals(number).name}")
            return 128 + number
        except ChildFailedError as error:
            return _explain_failures(launch, error)
        except RendezvousError as error:
            _report(f"error: --rendezvous {launch.rendezvous} has ended or cannot be reached: {error!r}")
            return TRY_AGAIN


def _torchrun_command(launch: argparse.Namespace, arguments: list[str], logs: str) -> list[str]:
    options = {
        "--nproc-per-node": str(launch.processes),
        "--max-restarts": str(launch.max_restarts),
        "--log-dir": logs,
        "--nnodes": launch.nodes,
        "--rdzv-backend": "c10d",
        "--rdzv-endpoint": launch.rendezvous,
        # Launchers of one SLURM job meet only each other, even if others use the same address.
        "--rdzv-id": os.environ.get("SLURM_JOB_ID", "training"),
        "--rdzv-conf": f"last_call_timeout={LAST_CALL}",
    }
    command: list[str] = []
    for name, value in options.items():
        command += [name, value]
    return [*command, "-m", "fairseq_depthwise", "train", *arguments]


def _explain_failures(launch: argparse.Namespace, error: ChildFailedError) -> int:
    """Report why restarts are exhausted, and return the exit status; raise UserError if a process raised one."""
    permanent = [failure for failure in error.failures.values() if failure.exitcode == PERMANENT]
    for failure in permanent:
        # torch's `record` wraps what a process raised: "UserError: sentence".
        if isinstance(failure.message, dict):
            raise UserError(failure.message["message"].partition(": ")[2])
    if permanent:
        return 1  # the process has reported it

    if Agent.first_failure is not None:
        rank, status = Agent.first_failure
    else:
        rank, failure = error.get_first_failure()
        status = failure.exitcode
    cause = f"was ended by {signal.Signals(-status).name}" if status < 0 else "failed"
    _report(f"error: process {rank} {cause}, and --max-restarts {launch.max_restarts} allows no more")
    # For a signal, 128 plus its number, as shells report it.
    return status if status > 0 else 128 - status


def _report(sentence: str) -> None:
    print(f"fairseq-depthwise: {sentence}; the same command resumes from the last checkpoint", file=sys.stderr)
