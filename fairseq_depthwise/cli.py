"""``fairseq-depthwise <subcommand>``: one file per subcommand in :mod:`fairseq_depthwise.commands`.

A subcommand is a module with a function ``add_to(subcommands)`` that adds its parser and sets ``run``. Results go to
stdout, progress to stderr; an error is one sentence and status 1, a wrong option status 2.
"""

from __future__ import annotations

import argparse
import io
import sys

import fairseq_compat
from fairseq_compat.commands.run import open_closed_streams, run_command, without_traceback_option
from fairseq_compat.process import keep_freed_memory
from fairseq_compat.versions import fairseq_problem
from fairseq_depthwise import register_with_fairseq
from fairseq_depthwise.commands import (
    analysis,
    average,
    compare,
    doctor,
    export,
    fairseq_commands,
    grow,
    inspect,
    params,
    report,
    score,
    serve,
    translate,
)
from fairseq_depthwise.commands.parsers import SubcommandParser

fairseq_compat.install()  # for processes that a command starts, where Python reads no start-up hooks

COMMANDS = (
    doctor,
    fairseq_commands,
    translate,
    serve,
    export,
    average,
    inspect,
    grow,
    params,
    analysis,
    score,
    compare,
    report,
)


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of all subcommands."""
    parser = argparse.ArgumentParser(
        prog="fairseq-depthwise",
        description="Train deep and wide Transformers with fairseq, and look at what comes out.",
        epilog="`fairseq-depthwise SUBCOMMAND --help` shows each one's options and an example; "
        "--traceback after any prints the traceback of an error.",
    )
    subcommands = parser.add_subparsers(
        title="subcommands", metavar="SUBCOMMAND", required=True, parser_class=SubcommandParser
    )
    for command in COMMANDS:
        command.add_to(subcommands)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run one subcommand and return its exit status."""
    open_closed_streams()
    given = without_traceback_option(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")  # a path that is not UTF-8 is printed as it was given
    name = " ".join(["fairseq-depthwise", *given[:1]])
    return run_command(name, lambda: _run(given))


def _run(given: list[str]) -> int | None:
    # fairseq's own options follow these three; argparse would take the first of them for ours.
    if given and given[0] in fairseq_commands.FAIRSEQ_COMMANDS and given[1:] not in (["-h"], ["--help"]):
        register_with_fairseq()
        return fairseq_commands.run(argparse.Namespace(command=given[0], arguments=given[1:]))
    options = build_parser().parse_args(given)
    if options.run is not doctor.run or fairseq_problem() is None:  # which doctor tells
        register_with_fairseq()
    keep_freed_memory()  # on a CPU; fairseq's commands, which may have a GPU, see to it themselves
    status: int | None = options.run(options)
    return status


if __name__ == "__main__":
    sys.exit(main())
