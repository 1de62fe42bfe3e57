"""``fairseq-depthwise <subcommand>``: one file per subcommand in :mod:`fairseq_depthwise.commands`.

A subcommand is a module with a function ``add_to(subcommands)`` that adds its parser and sets ``run``. Results go to
stdout, progress to stderr; bad input ends with status 1 and one sentence, a wrong option with status 2.
"""

from __future__ import annotations

import argparse
import io
import os
import sys

from fairseq_compat import UserError
from fairseq_compat.explanations import explain
from fairseq_compat.process import keep_freed_memory
from fairseq_depthwise.commands import (
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
from fairseq_depthwise.commands.analysis import gates, probe, similarity, units
from fairseq_depthwise.commands.parsers import SubcommandParser

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
    units,
    probe,
    similarity,
    gates,
    score,
    compare,
    report,
)


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of all subcommands."""
    parser = argparse.ArgumentParser(
        prog="fairseq-depthwise",
        description="Train deep and wide Transformers with fairseq, and look at what comes out.",
        epilog="`fairseq-depthwise SUBCOMMAND --help` shows each one's options and an example.",
    )
    subcommands = parser.add_subparsers(
        title="subcommands", metavar="SUBCOMMAND", required=True, parser_class=SubcommandParser
    )
    for command in COMMANDS:
        command.add_to(subcommands)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run one subcommand and return its exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    # fairseq's own options follow these three; argparse would take the first of them for ours.
    if given and given[0] in fairseq_commands.FAIRSEQ_COMMANDS and given[1:] not in (["-h"], ["--help"]):
        run, options = fairseq_commands.run, argparse.Namespace(command=given[0], arguments=given[1:])
    else:
        options = build_parser().parse_args(given)
        run = options.run
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")  # a path that is not UTF-8 is printed as it was given
    try:
        # On a CPU; fairseq's commands, which may have a GPU, see to it themselves.
        if run is not fairseq_commands.run:
            keep_freed_memory()
        status = int(run(options) or 0)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Whoever read our output has enough (``params | head``); Python must not complain at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (UserError, OSError) as error:
        sentence = explain(error)
        if sentence is None and _names_nothing(error):
            raise
        print(f"fairseq-depthwise: error: {sentence or error}", file=sys.stderr)
        return 1


def _names_nothing(error: Exception) -> bool:
    """Return whether this is about a socket, as of a process that loads data: only its traceback says of which."""
    if not isinstance(error, (FileNotFoundError, ConnectionError)):
        return False
    return error.errno is not None and error.filename is None


if __name__ == "__main__":
    sys.exit(main())
