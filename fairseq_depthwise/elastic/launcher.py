"""The options of ``train --elastic``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from fairseq_compat import UserError
from fairseq_depthwise.options import between, positive_int

#: The rendezvous of a single machine; port 0 stands for any free port.
_SINGLE_MACHINE = "localhost:0"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a launcher."""
    group = parser.add_argument_group("elastic training")
    group.add_argument(
        "--elastic",
        action="store_true",
        help="start the processes with torchrun, and start them again from the last checkpoint when one dies; "
        "--update-freq is then the number of batches of an update over all processes",
    )
    group.add_argument(
        "--processes",
        type=positive_int,
        metavar="N",
        help="processes on this machine (default: one for each GPU, or one)",
    )
    group.add_argument(
        "--nodes",
        default="1",
        metavar="MIN:MAX",
        help="number of machines, such as 2 or 1:4 (default: 1)",
    )
    group.add_argument(
        "--rendezvous",
        default=_SINGLE_MACHINE,
        metavar="HOST:PORT",
        help="where the launchers of several machines meet",
    )
    group.add_argument(
        "--max-restarts",
        type=between(0, 2**31 - 1, int),
        default=3,
        metavar="N",
        help="restarts after failures (default: 3)",
    )


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Split a command line into the launcher's options and those of fairseq.

    Raises:
        UserError: there are several machines but no rendezvous.
    """
    # Abbreviations are off: --node-rank or --process of another parser must not become one of these options.
    parser = argparse.ArgumentParser(prog="fairseq-depthwise train", add_help=False, allow_abbrev=False)
    add_options(parser)
    launch, fairseq_arguments = parser.parse_known_args(arguments)

    if launch.nodes != "1" and launch.rendezvous == _SINGLE_MACHINE:
        raise UserError(
            f"--nodes {launch.nodes} needs --rendezvous HOST:PORT, the address of a machine that all others can reach"
        )

    if launch.processes is None:
        import torch  # only here: --help must not wait for it

        launch.processes = max(1, torch.cuda.device_count())
    return launch, fairseq_arguments
