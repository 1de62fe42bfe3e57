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
from fairseq_depthwise.commands import architectures
from fairseq_depthwise.elastic import launcher, rank

FAIRSEQ_COMMANDS = ("train", "generate", "interactive")


def add_to(parser: argparse.ArgumentParser) -> None:
    name = parser.prog.split()[-1]
    # The module's docstring has one example for each command.
    examples = [line for line in (__doc__ or "").splitlines() if line.startswith(f"  fairseq-depthwise {name} ")]
    parser.epilog = "\n".join(["example:", *examples])
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, help=f"options of fairseq-{name}, which `fairseq-{name} -h` lists"
    )
    if name == "train":
        architectures.add_options(parser)
        launcher.add_options(parser)


def run(options: argparse.Namespace) -> int:
    """Hand over to fairseq in this process, so that ``torchrun -m fairseq_depthwise train`` works too."""
    command = options.command
    if command == "train" and architectures.answer(options.arguments):
        return 0
    options.arguments = ["--help" if word == architectures.HELP_ALL else word for word in options.arguments]
    folder = str(Path(fairseq_depthwise.__file__).parent)
    # Importing the plugin imported a fairseq module that configures logging; clear it, so that the command can do so.
    logging.getLogger().handlers.clear()
    # With a wrong option this logger prints the whole configuration before the error that names the option.
    logging.getLogger("fairseq.dataclass.utils").setLevel(logging.CRITICAL)
    if command == "train" and "--elastic" in options.arguments:
        launcher_options, fairseq_arguments = launcher.parse(options.arguments)
        from fairseq_depthwise.elastic import agent

        return agent.run(launcher_options, with_user_dir(fairseq_arguments, folder))
    sys.argv = [f"fairseq-{command}", *with_user_dir(options.arguments, folder)]
    if command == "train":
        return _train()
    importlib.import_module(f"fairseq_cli.{command}").cli_main()
    return 0


def _train() -> int:
    from fairseq_depthwise.commands.training_progress import shown_training

    with shown_training():
        if rank.is_elastic_worker():
            return rank.train()
        importlib.import_module("fairseq_cli.train").cli_main()
        return 0


def with_user_dir(arguments: list[str], folder: str) -> list[str]:
    """Return ``arguments`` with ``--user-dir folder`` in front, unless they name that folder themselves.

    Raises:
        UserError: they name another folder: only one copy of the plugin can be registered in a process.
    """
    parser = argparse.ArgumentParser(prog="fairseq-depthwise", add_help=False, allow_abbrev=False)
    parser.add_argument("--user-dir", nargs="?", const="")
    user_dir = parser.parse_known_args(arguments)[0].user_dir
    if user_dir is None:
        return ["--user-dir", folder, *arguments]
    if os.path.realpath(user_dir) != os.path.realpath(folder):
        raise UserError(
            f"--user-dir {user_dir} is another folder than the installed plugin in {folder}; leave the option out, or "
            "call fairseq's own command with that folder"
        )
    return arguments
