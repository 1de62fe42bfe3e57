"""The exception for mistakes in the user's input, and errors in one sentence."""

from __future__ import annotations

import os
from collections.abc import Iterator


class UserError(ValueError):
    """A mistake in the input: an option, a file, the environment.

    Its message is one sentence that names the option or file, the value found, and what would be right.
    """


#: How a line begins that Python prints of one, as in the report of another process.
_PRINTED = f"{UserError.__module__}.{UserError.__qualname__}: "


def mistake(error: BaseException) -> str | None:
    """Return the sentence about a mistake of the user; None for an error that its traceback may explain.

    A mistake is a :class:`UserError`, also one that has become another error or that another process reports, and an
    error of the system that names a file.
    """
    for one in chain(error):
        for line in reversed(str(one).splitlines()):
            if line.startswith(_PRINTED):
                return line.removeprefix(_PRINTED)
        if isinstance(one, UserError):
            return str(one)
    if isinstance(error, OSError) and error.filename is not None:
        missing = isinstance(error, FileNotFoundError)
        return f"{os.fsdecode(error.filename) or repr('')} does not exist" if missing else str(error)
    if isinstance(error, OSError) and error.errno is None:  # what a program says itself
        return named(error)
    return None


def named(error: BaseException) -> str:
    """Return an error's class and message on one line; of another process's report, its last line."""
    message = str(error).strip()
    if "Traceback (most recent call last)" in message:
        message = message.splitlines()[-1]
    return f"{type(error).__name__}: {' '.join(message.split())[:500]}"


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, and those that it was made of."""
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
