"""The options of ``train --elastic``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from fairseq_compat import UserError
from fairseq_depthwise.options import between, positive_int

_HERE = "localhost:0"  # where the launcher of one machine meets nobody, at a port that is free


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a launcher."""
    group = parser.add_argument_group("processes that are started again")
    group.add_argument(
        "--elastic", action="store_true",
        help="start the processes with torchrun, and start them again from the last checkpoint when one dies; "
        "--update-freq is then the number of batches of an update over all processes",
    )  # fmt: skip
    group.add_argument(
        "--processes", type=positive_int, metavar="N", help="on this machine (default: one for each GPU, or one)"
    )
    group.add_argument("--nodes", default="1", metavar="MIN:MAX", help="machines, such as 2 or 1:4 (default: 1)")
    group.add_argument(
        "--rendezvous", default=_HERE, metavar="HOST:PORT", help="where the launchers of several machines meet"
    )
    group.add_argument(
        "--max-restarts", type=between(0, 2**31 - 1, int), default=3, metavar="N",
        help="restarts after failures (default: 3)",
    )  # fmt: skip


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the options of the launcher, and those of fairseq."""
    parser = argparse.ArgumentParser(prog="fairseq-depthwise train", add_help=False, allow_abbrev=False)
    add_options(parser)
    launch, rest = parser.parse_known_args(arguments)
    if launch.nodes != "1" and launch.rendezvous == _HERE:
        raise UserError(f"--nodes {launch.nodes} needs --rendezvous HOST:PORT, on a machine that all others reach")
    if launch.processes is None:
        import torch

        launch.processes = max(1, torch.cuda.device_count())
    return launch, rest
