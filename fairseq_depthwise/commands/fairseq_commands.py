"""``train``, ``generate``, ``interactive``: fairseq's command with ``--user-dir`` added."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from pathlib import Path
from typing import Any

import fairseq_depthwise
from fairseq_compat import UserError
from fairseq_depthwise.commands.parsers import add_parser
from fairseq_depthwise.elastic import launcher, rank

#: Our name, and that of fairseq's module -> what it does, the end of an example.
FAIRSEQ_COMMANDS = {
    "train": ("train a model", "data-bin --arch depthwise_lstm_transformer --max-tokens 4096 --optimizer adam ..."),
    "generate": ("translate binarized data", "data-bin --path checkpoints/checkpoint_best.pt --beam 4 --remove-bpe"),
    "interactive": (
        "translate standard input",
        "data-bin --path checkpoints/checkpoint_best.pt --bpe subword_nmt ...",
    ),
}


def add_to(subcommands: Any) -> None:
    for name, (what, example) in FAIRSEQ_COMMANDS.items():
        help, example = f"{what}: fairseq-{name} with the plugin loaded", f"fairseq-depthwise {name} {example}"
        parser = add_parser(subcommands, name, run=run, help=help, example=example)
        parser.add_argument(
            "arguments", nargs=argparse.REMAINDER, help=f"options of fairseq-{name}, which `fairseq-{name} -h` lists"
        )
        if name == "train":
            launcher.add_options(parser)
        parser.set_defaults(command=name)


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
    for position, argument in enumerate(arguments):
        name, _, value = argument.partition("=")
        if name == "--user-dir":
            given = value or "".join(arguments[position + 1 : position + 2])
            if os.path.realpath(given) != os.path.realpath(folder):
                raise UserError(
                    f"--user-dir {given} is another folder than the installed plugin in {folder}; leave the option "
                    "out, or call fairseq's own command with that folder"
                )
            return arguments
    return ["--user-dir", folder, *arguments]
