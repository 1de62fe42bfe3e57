"""How a command ends: its streams, Ctrl-C, and what it says of errors. fairseq's commands and ours have the same."""

from __future__ import annotations

import errno
import logging
import os
import select
import shlex
import stat
import sys
import time
import traceback
from collections.abc import Callable
from itertools import islice
from typing import Any

from fairseq_compat.errors import UserError, chain, mistake, named
from fairseq_compat.files import NO_ROOM
from fairseq_compat.user_cache import user_cache
from fairseq_compat.versions import recorded_versions

#: What prints every traceback.
TRACEBACK, TRACEBACK_OPTION = "FAIRSEQ_COMPAT_TRACEBACK", "--traceback"


def open_closed_streams() -> None:
    """Open closed standard streams on the null device, in the order of their numbers.

    No file that is opened later takes the number of one, whose text would get into it.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)  # the lowest that is free
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115  # until the end


def run_command(name: str, run: Callable[[], Any]) -> int:
    """Run a command, which returns a status or None for 0; return its exit status.

    Whatever goes wrong is one sentence on stderr.
    """
    open_closed_streams()
    logging.raiseExceptions = False  # a traceback for each line that a full disk does not take, otherwise
    try:
        try:
            return int(run() or 0)
        finally:  # SystemExit of --help, too
            sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130  # as shells have it
    except Exception as error:
        problem = _problem_of_stdout(error)
        if problem is None:
            return fail(name, error)
        # Python would flush once more at the end, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return fail(name, UserError(problem)) if problem else 1


def fail(name: str, error: Exception) -> int:
    """Print one sentence about an error; return status 1. The traceback of one that nobody expects is kept in a file.

    With ``--traceback``, or the environment variable, every traceback is printed.
    """
    if sentence := mistake(error):
        sentence = f"{name.split()[0]}: error: {sentence}"
    else:
        sentence = f"{name}: {', after '.join(map(named, islice(chain(error), 2)))}"
        if not os.environ.get(TRACEBACK):
            sentence += f"; the traceback {_keep_traceback(name, error)}"
    if os.environ.get(TRACEBACK):
        traceback.print_exception(error)
    # What a file has in it may end lines, or give orders to a terminal.
    print("".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in sentence), file=sys.stderr)
    return 1


def _keep_traceback(name: str, error: Exception) -> str:
    """Write the command line, the versions and the traceback into a file; return the end of a sentence about it."""
    began = f"{name.replace(' ', '-')}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    path = os.path.join(user_cache(), "fairseq-depthwise", "tracebacks", began)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        # A file or link that is there is not this process's.
        with open(path, "x", encoding="utf-8", errors="backslashreplace") as file:
            print(shlex.join(sys.argv), recorded_versions(), sep="\n", end="\n\n", file=file)
            traceback.print_exception(error, file=file)
    except OSError as refused:
        traceback.print_exception(error)
        return f"is above, as {path} cannot be written ({refused.strerror})"
    return f"is in {path}"


def without_traceback_option(arguments: list[str]) -> list[str]:
    """Return a command line without ``--traceback``, which this process and those that it starts know from now on."""
    if TRACEBACK_OPTION in arguments:
        os.environ[TRACEBACK] = "1"
    return [argument for argument in arguments if argument != TRACEBACK_OPTION]


def _problem_of_stdout(error: Exception) -> str | None:
    """Return what could not be written, stdout or a file without a name: "" where a reader has enough, else a sentence.

    None is for all other errors.
    """
    if not isinstance(error, OSError) or error.filename is not None:
        return None
    if isinstance(error, BrokenPipeError):
        poll = select.poll()
        poll.register(1, 0)
        return "" if any(events & select.POLLERR for _, events in poll.poll(0)) else None
    if error.errno not in (*NO_ROOM, errno.EIO):
        return None
    # Whoever writes a file names it in the error, but fairseq does not always.
    is_stored = not (os.isatty(1) or stat.S_ISFIFO(os.fstat(1).st_mode))
    return f"{'standard output or ' if is_stored else ''}a file cannot be written: {error.strerror}"
