"""How a command ends: its streams, Ctrl-C, and its errors. All commands of fairseq and of plugins end the same way."""

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

#: The environment variable and the option that print every traceback.
TRACEBACK, TRACEBACK_OPTION = "FAIRSEQ_COMPAT_TRACEBACK", "--traceback"


def open_closed_streams() -> None:
    """Open closed standard streams on the null device, in the order of their numbers.

    Otherwise a file opened later gets the number of a closed stream, and text for that stream is written to the file.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)  # the lowest free number
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115  # until the end


def run_command(name: str, run: Callable[[], Any]) -> int:
    """Run a command, which returns a status or None for 0; return its exit status.

    Any error is printed to stderr as one sentence.
    """
    open_closed_streams()
    logging.raiseExceptions = False  # otherwise a full disk causes a traceback for each line of the log
    try:
        try:
            return int(run() or 0)
        finally:  # even after SystemExit, as with --help
            sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130  # the shell's status for Ctrl-C
    except Exception as error:
        problem = _describe_stdout_error(error)
        if problem is None:
            return fail(name, error)
        # Python would flush once more at the end, and report the error again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return fail(name, UserError(problem)) if problem else 1


def fail(name: str, error: Exception) -> int:
    """Print one sentence about an error, and return status 1. The traceback of an unexpected error goes to a file.

    With ``--traceback``, or the environment variable, every traceback is printed.
    """
    problem = mistake(error)
    if problem:
        sentence = f"{name.split()[0]}: error: {problem}"
    else:
        error_and_cause = islice(chain(error), 2)
        sentence = f"{name}: {', after '.join(map(named, error_and_cause))}"
        if not os.environ.get(TRACEBACK):
            sentence += f"; the traceback {_keep_traceback(name, error)}"
    if os.environ.get(TRACEBACK):
        traceback.print_exception(error)
    print(_escape_unprintable(sentence), file=sys.stderr)
    return 1


def _escape_unprintable(sentence: str) -> str:
    """Return a sentence with escapes for what may end lines or control a terminal, as parts of files may."""
    letters = []
    for letter in sentence:
        letters.append(letter if letter.isprintable() else repr(letter)[1:-1])
    return "".join(letters)


def _keep_traceback(name: str, error: Exception) -> str:
    """Write the command line, the versions and the traceback into a file; return the end of a sentence about it."""
    file_name = f"{name.replace(' ', '-')}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    path = os.path.join(user_cache(), "fairseq-depthwise", "tracebacks", file_name)
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
    """Return a command line without ``--traceback``, which applies to this process and those that it starts."""
    if TRACEBACK_OPTION in arguments:
        os.environ[TRACEBACK] = "1"
    return [argument for argument in arguments if argument != TRACEBACK_OPTION]


def _describe_stdout_error(error: Exception) -> str | None:
    """Return a sentence about stdout or an unnamed file that could not be written; "" where a reader has closed it.

    For all other errors it is None.
    """
    if not isinstance(error, OSError) or error.filename is not None:
        return None
    if isinstance(error, BrokenPipeError):
        poll = select.poll()
        poll.register(1, 0)
        is_closed = any(events & select.POLLERR for _, events in poll.poll(0))
        return "" if is_closed else None
    if error.errno not in (*NO_ROOM, errno.EIO):
        return None
    # fairseq does not always name the file that it writes, so it may be stdout.
    is_stored = not (os.isatty(1) or stat.S_ISFIFO(os.fstat(1).st_mode))
    file = "standard output or a file" if is_stored else "a file"
    return f"{file} cannot be written: {error.strerror}"
