"""``train --elastic``: starts the processes of a training with torchrun, and starts them again when one dies.

The launchers of all machines meet at a rendezvous; where a process dies, or a machine joins or leaves, they meet again
and start their processes anew, which go on from the last checkpoint.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from fairseq_compat import UserError
from fairseq_depthwise.elastic.rank import ELASTIC, PERMANENT, TRY_AGAIN

LAST_CALL = 10  # seconds for which launchers wait for more machines once there are enough of them
_HERE = "localhost:0"  # where the launcher of one machine meets nobody, at a port that is free


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a launcher."""
    group = parser.add_argument_group("processes that are started again")
    group.add_argument(
        "--elastic", action="store_true",
        help="start the processes with torchrun, and start them again from the last checkpoint when one dies; "
        "--update-freq is then the number of batches of an update over all processes",
    )  # fmt: skip
    group.add_argument("--processes", type=int, metavar="N", help="on this machine (default: one for each GPU, or one)")
    group.add_argument("--nodes", default="1", metavar="MIN:MAX", help="machines, such as 2 or 1:4 (default: 1)")
    group.add_argument(
        "--rendezvous", default=_HERE, metavar="HOST:PORT", help="where the launchers of several machines meet"
    )
    group.add_argument("--max-restarts", type=int, default=3, metavar="N", help="restarts after failures (default: 3)")


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the options of the launcher, and those of fairseq; options that contradict each other are refused."""
    parser = argparse.ArgumentParser(prog="fairseq-depthwise train", add_help=False, allow_abbrev=False)
    add_options(parser)
    launch, rest = parser.parse_known_args(arguments)
    if launch.nodes != "1" and launch.rendezvous == _HERE:
        raise UserError(f"--nodes {launch.nodes} needs --rendezvous HOST:PORT, on a machine that all others reach")
    if launch.processes is None:
        import torch

        launch.processes = max(1, torch.cuda.device_count())
    return launch, rest


def run(launch: argparse.Namespace, arguments: list[str]) -> int:
    """Train to the end with as many processes as there are, given options of fairseq-train; return the exit status.

    That is 0, 1 for what only the user can change, 128 and a signal's number, 75 where other machines ended, or that of
    the process that failed once too often.
    """
    # What is wrong with the options is said once, and not in each process.
    from fairseq import options as fairseq_options

    sys.argv = ["fairseq-train", *arguments]  # which the parser looks at, too
    fairseq_options.parse_args_and_arch(fairseq_options.get_training_parser(), arguments)
    os.environ[ELASTIC] = str(os.getpid())
    # Processes of gloo that share the launchers' store do not find each other after a restart (PyTorch's #135712).
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"

    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError
    from torch.distributed.launcher import api

    from fairseq_depthwise.elastic.agent import Agent, listen

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
            return _explain_failures(launch, error, Agent.first_failure)
        except RendezvousError as error:
            _say(f"error: --rendezvous {launch.rendezvous} has ended or is not reached: {error!r}")
            return TRY_AGAIN


def _explain_failures(launch: argparse.Namespace, error: Any, first_failure: tuple[int, int] | None) -> int:
    """Say why the processes failed once too often, and return the exit status, or raise what the user can change."""
    permanent = [failure for failure in error.failures.values() if failure.exitcode == PERMANENT]
    for failure in permanent:
        if isinstance(failure.message, dict):  # of record
            raise UserError(failure.message["message"].partition(": ")[2])
    if permanent:
        return 1  # the process has said why
    rank, status = first_failure or (error.get_first_failure()[0], error.get_first_failure()[1].exitcode)
    how = f"was ended by {signal.Signals(-status).name}" if status < 0 else "failed"
    _say(f"error: process {rank} {how}, and --max-restarts {launch.max_restarts} allows no more")
    return status if status > 0 else 128 - status


def _say(sentence: str) -> None:
    print(f"fairseq-depthwise: {sentence}; the same command goes on from the last checkpoint", file=sys.stderr)
