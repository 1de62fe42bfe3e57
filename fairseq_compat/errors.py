"""The exception for mistakes in the user's input, and errors in one sentence."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:  # this file is imported at every start of Python; see fairseq_compat/import_hook.py
    from collections.abc import Iterator


class UserError(ValueError):
    """A mistake in the input: an option, a file, the environment.

    Its message is one sentence that names the option or file, its value, and what would be right.
    """


#: How Python prints a UserError at the end of a traceback, such as the one that another process reports as a text.
_PRINTED = f"{UserError.__module__}.{UserError.__qualname__}: "


def mistake(error: BaseException) -> str | None:
    """Return the sentence about a mistake of the user; None for an error that its traceback may explain.

    A mistake is

    - a :class:`UserError`, also as the cause of another error, or in the report of another process
    - a check of fairseq's own that failed
    - a configuration that hydra cannot read
    - an error of the system that names a file
    """
    for cause in chain(error):
        # The text of an error of torch.multiprocessing, or of a process pool, is the traceback of the other process.
        for line in reversed(str(cause).splitlines()):
            if line.startswith(_PRINTED):
                return line.removeprefix(_PRINTED)
        if isinstance(cause, UserError):
            return str(cause)

    if _is_check_of_fairseq(error):
        return str(error)
    if _package_of(type(error).__module__) in ("hydra", "omegaconf", "yaml"):
        return _mistake_in_configuration(error)
    if isinstance(error, OSError) and error.filename is not None:
        missing = isinstance(error, FileNotFoundError)
        # The name is empty if the option is.
        return f"{os.fsdecode(error.filename) or repr('')} does not exist" if missing else str(error)
    # Raised by a program, not by the system: fairseq's "Model file not found: ...".
    if isinstance(error, OSError) and error.errno is None:
        return named(error)
    return None


def _is_check_of_fairseq(error: BaseException) -> bool:
    """Return whether a line of fairseq raised an error with a message, as its checks of options do."""
    if not isinstance(error, (AssertionError, ValueError, ImportError)) or not str(error):
        return False
    import linecache
    from traceback import walk_tb

    frames = list(walk_tb(error.__traceback__))
    if not frames:  # it was never raised
        return False
    frame, number = frames[-1]  # the innermost
    if _package_of(frame.f_globals.get("__name__", "")) not in ("fairseq", "fairseq_cli"):
        return False
    # Python and NumPy, whose C functions have no frames, raise errors in lines that call them: these are not checks.
    line = linecache.getline(frame.f_code.co_filename, number).strip()
    return isinstance(error, AssertionError) or line.startswith("raise ")


def _package_of(module: str) -> str:
    return module.partition(".")[0]


def _mistake_in_configuration(error: BaseException) -> str:
    """Return a sentence about an error of hydra or its files, with the key and the option that it names, if any."""
    keys = [getattr(cause, "full_key", None) for cause in chain(error)]
    key = next(filter(None, keys), None)
    place = f" at {key}, option --{key.rpartition('.')[2].replace('_', '-')}" if key else ""
    reasons = []
    for cause in chain(error):
        # omegaconf adds the key and the types, and hydra pages about where it searched.
        message = str(cause).split("full_key")[0]
        reasons.append(" ".join(message.split())[:300])
    return f"the configuration cannot be used{place}: {'; '.join(reasons[:2])}"


def named(error: BaseException) -> str:
    """Return an error's class and message on one line; of another process's report, its last line."""
    message = str(error).strip()
    if "Traceback (most recent call last)" in message:
        message = message.splitlines()[-1]
    return f"{type(error).__name__}: {' '.join(message.split())[:500]}"


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes, as Python prints them."""
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
