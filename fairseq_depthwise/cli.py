"""``fairseq-depthwise <subcommand>``: one file per subcommand in :mod:`fairseq_depthwise.commands`.

A subcommand is a module whose docstring ends with an example, and which imports neither PyTorch nor fairseq. It has the
functions

- ``add_to(parser)``, which adds its options;
- ``check(options)``, if there is anything to check: it refuses options and files that cannot be used, before PyTorch
  and fairseq are imported, and may replace a file's name by its path;
- ``run(options)``, which imports what it uses.

Results go to stdout, progress to stderr; an error is one sentence and status 1, a wrong option status 2.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import io
import sys
from typing import Any

import fairseq_compat
from fairseq_compat.commands.run import run_command, without_traceback_option
from fairseq_compat.process import keep_freed_memory, sleep_while_waiting
from fairseq_depthwise import __version__, register_with_fairseq
from fairseq_depthwise.commands import fairseq_commands
from fairseq_depthwise.commands.parsers import SubcommandParser

fairseq_compat.install()  # for processes that a command starts, where Python reads no start-up hooks
sleep_while_waiting()  # before a command imports PyTorch

#: What each does, in the order of ``--help``, for which no module is imported.
COMMANDS = {
    "doctor": "check the installation and suggest fixes: versions, patches, devices",
    "prepare": "make data for train of raw parallel text: tokenize, split into subwords, binarize",
    "train": "train a model: fairseq-train with the plugin loaded",
    "generate": "translate binarized data: fairseq-generate with the plugin loaded",
    "interactive": "translate standard input: fairseq-interactive with the plugin loaded",
    "translate": "translate text: raw lines in, raw translations out, in order",
    "serve": "translate over HTTP: JSON, a page for people, metrics",
    "export": "export a model as ONNX files, to be run without fairseq, or as weights",
    "average": "average the parameters of checkpoints",
    "inspect": "show what a checkpoint holds: its model, how far it was trained and how, which versions wrote it",
    "grow": "make the model of a checkpoint deeper",
    "params": "compare the parameters of every published model with the published counts, or count those of one's own",
    "units": "measure the diversity of the units of mute_transformer models, and show their weights and attention",
    "probe": "replace each layer of a trained model by a linear layer, and measure the loss in BLEU",
    "similarity": "measure the cosine similarity of each layer's output to embedding, layer below and sentence",
    "gates": "measure gates and state norms of depthwise_lstm_transformer models, or the weights of connections",
    "score": "score translations, plain text or the output of fairseq-generate, with BLEU or chrF",
    "compare": "compare systems with a base: paired significance tests, several seeds, many languages",
    "report": "make one HTML page of training runs: loss, BLEU, rate, depth, gates, speed and options",
}

#: Those that run without fairseq and PyTorch, and ``doctor``, which reports what is wrong with them.
WITHOUT_FAIRSEQ = ("doctor", "prepare", "score", "compare", "report")


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of all subcommands."""
    parser = argparse.ArgumentParser(
        prog="fairseq-depthwise",
        description="Train deep and wide Transformers with fairseq, and look at what comes out.",
        epilog="`fairseq-depthwise SUBCOMMAND --help` shows each one's options and an example; "
        "--traceback after any prints the traceback of an error.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    subcommands = parser.add_subparsers(
        title="subcommands", metavar="SUBCOMMAND", required=True, dest="subcommand", parser_class=SubcommandParser
    )
    for name, help in COMMANDS.items():
        subcommand = subcommands.add_parser(name, help=help, description=f"{help[0].upper()}{help[1:]}.")
        subcommand.command = functools.partial(_module_of, name)
    return parser


def _module_of(name: str) -> Any:
    if name in fairseq_commands.FAIRSEQ_COMMANDS:
        return fairseq_commands
    return importlib.import_module(f"fairseq_depthwise.commands.{name}")


def main(arguments: list[str] | None = None) -> int:
    """Run one subcommand and return its exit status."""
    words = without_traceback_option(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")  # a path that is not UTF-8 is printed as it was given
    name = " ".join(["fairseq-depthwise", *words[:1]])
    return run_command(name, lambda: _run(words))


def _run(words: list[str]) -> int | None:
    # fairseq's own options follow these three; argparse would take the first of them for ours.
    if words and words[0] in fairseq_commands.FAIRSEQ_COMMANDS and words[1:] not in (["-h"], ["--help"]):
        register_with_fairseq()
        return fairseq_commands.run(argparse.Namespace(command=words[0], arguments=words[1:]))
    options = build_parser().parse_args(words)
    module = _module_of(options.subcommand)
    if hasattr(module, "check"):
        module.check(options)
    if options.subcommand not in WITHOUT_FAIRSEQ:
        register_with_fairseq()
    keep_freed_memory()  # on a CPU; fairseq's commands, which may have a GPU, see to it themselves
    status: int | None = module.run(options)
    return status


if __name__ == "__main__":
    sys.exit(main())
