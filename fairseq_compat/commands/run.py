"""How a command ends: its streams, Ctrl-C, and what it says of errors. fairseq's commands and ours have the same."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
import sys
from collections.abc import Callable
from typing import Any

#: The status of what Ctrl-C ended, as shells have it.
INTERRUPTED = 130

#: What the system reports where nothing more can be written.
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}

#: Streams that were closed when the command began.
_closed: set[str] = set()


def open_closed_streams() -> None:
    """Open closed standard streams on the null device, in the order of their numbers.

    No file that is opened later takes the number of one, and nothing has to ask whether there are any.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        _closed.add(name)
        try:
            os.fstat(number)
        except OSError:
            descriptor = os.open(os.devnull, os.O_RDWR)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
            os.set_inheritable(number, True)
        setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115  # until the end


def run_command(name: str, run: Callable[[], Any], *, prints_results: bool = True) -> int:
    """Run a command and return its exit status; one sentence on stderr, where the user can mend what is wrong.

    Args:
        name: what the sentence begins with.
        run: does the work, and returns a status, or None for 0.
        prints_results: what it is for goes to stdout, and not into files.

    Raises:
        Exception: an error that deserves its traceback, or any if ``FAIRSEQ_COMPAT_TRACEBACK`` is set.
    """
    open_closed_streams()
    logging.Handler.handleError = _log_failed  # type: ignore[assignment, method-assign]  # a traceback for each line, otherwise
    status: int | None = None
    try:
        if prints_results and "stdout" in _closed:
            return _fail(name, "standard output is closed, which takes the results; redirect it into a file (> FILE)")
        try:
            status = int(run() or 0)
        finally:  # SystemExit of --help, too
            sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        # Now, as a module cannot be imported where no more files may be open.
        problem = _problem_of_stdout(error)
        if problem is not None:
            # Python would flush once more at the end, and complain.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            if status is not None and not prints_results:  # the work is done, only the end of its log is missing
                return status
            return 1 if not problem else _fail(name, problem)
        sentence = _sentence(error)
        if sentence is None or os.environ.get("FAIRSEQ_COMPAT_TRACEBACK"):
            raise
        return _fail(name, sentence)


def _fail(name: str, sentence: str) -> int:
    # What a file has in it may end lines, or give orders to a terminal.
    shown = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in sentence)
    print(f"{name}: error: {shown}", file=sys.stderr)
    return 1


def _sentence(error: Exception) -> str | None:
    from fairseq_compat.explanations import explain

    sentence = explain(error)
    if sentence is not None or not isinstance(error, OSError):
        return sentence
    # One about a socket, as of a process that loads data: only its traceback says of which.
    names_nothing = isinstance(error, (FileNotFoundError, ConnectionError)) and error.filename is None
    return None if names_nothing and error.errno is not None else str(error)


def _problem_of_stdout(error: Exception) -> str | None:
    """Return what is wrong with stdout if that is the error: "" where its reader has enough, else a sentence."""
    if not isinstance(error, OSError) or error.filename is not None:
        return None
    if isinstance(error, BrokenPipeError):
        poll = select.poll()
        poll.register(1, 0)
        return "" if any(events & select.POLLERR for _, events in poll.poll(0)) else None
    # Whoever writes a file names it in the error.
    return f"standard output cannot be written: {error.strerror}" if error.errno in _NO_ROOM else None


def _log_failed(handler: logging.Handler, record: logging.LogRecord) -> None:
    """Say once that a log cannot be written; what writes it goes on."""
    error = sys.exc_info()[1]
    if handler not in _failed_logs and not isinstance(error, BrokenPipeError):
        with contextlib.suppress(OSError):
            print(f"the log cannot be written: {error}", file=sys.stderr)
    _failed_logs.add(handler)


_failed_logs: set[logging.Handler] = set()
