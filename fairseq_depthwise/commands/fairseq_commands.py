"""``train``, ``generate``, ``interactive``: fairseq's command with ``--user-dir`` added.

example:
  fairseq-depthwise train data-bin --arch depthwise_lstm_transformer --max-tokens 4096 --optimizer adam ...
  fairseq-depthwise generate data-bin --path checkpoints/checkpoint_best.pt --beam 4 --remove-bpe
  fairseq-depthwise interactive data-bin --path checkpoints/checkpoint_best.pt --bpe subword_nmt ...
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from pathlib import Path

import fairseq_depthwise
from fairseq_compat import UserError
from fairseq_depthwise.elastic import launcher, rank

FAIRSEQ_COMMANDS = ("train", "generate", "interactive")


def add_to(parser: argparse.ArgumentParser) -> None:
    name = parser.prog.split()[-1]
    examples = [line for line in (__doc__ or "").splitlines() if line.startswith(f"  fairseq-depthwise {name} ")]
    parser.epilog = "\n".join(["example:", *examples])
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, help=f"options of fairseq-{name}, which `fairseq-{name} -h` lists"
    )
    if name == "train":
        launcher.add_options(parser)


def run(options: argparse.Namespace) -> int:
    """Hand over to fairseq in this process, so that ``torchrun -m fairseq_depthwise train`` works too."""
    module, folder = options.command, str(Path(fairseq_depthwise.__file__).parent)
    # A module of fairseq that came with the plugin has set up logging; the command is to do it in its own way.
    logging.getLogger().handlers.clear()
    # It logs all options, seven thousand characters, where one is wrong; the sentence that follows names that one.
    logging.getLogger("fairseq.dataclass.utils").setLevel(logging.CRITICAL)
    if module == "train" and "--elastic" in options.arguments:
        launch, arguments = launcher.parse(options.arguments)
        from fairseq_depthwise.elastic import agent

        return agent.run(launch, with_user_dir(arguments, folder))
    sys.argv = [f"fairseq-{module}", *with_user_dir(options.arguments, folder)]
    if module == "train" and rank.is_rank():
        return rank.train()
    importlib.import_module(f"fairseq_cli.{module}").cli_main()
    return 0


def with_user_dir(arguments: list[str], folder: str) -> list[str]:
    """Return ``arguments`` with ``--user-dir folder`` in front, unless they name that folder themselves.

    Raises:
        UserError: they name another folder; two copies of the plugin cannot be registered in one process.
    """
    parser = argparse.ArgumentParser(prog="fairseq-depthwise", add_help=False, allow_abbrev=False)
    parser.add_argument("--user-dir", nargs="?", const="")
    given = parser.parse_known_args(arguments)[0].user_dir
    if given is not None and os.path.realpath(given) != os.path.realpath(folder):
        raise UserError(
            f"--user-dir {given} is another folder than the installed plugin in {folder}; leave the option out, or "
            "call fairseq's own command with that folder"
        )
    return arguments if given is not None else ["--user-dir", folder, *arguments]
