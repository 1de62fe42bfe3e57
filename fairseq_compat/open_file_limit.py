"""How many files a process may have open at a time: going up to it, and saying so where it is not enough."""

from __future__ import annotations

import errno
import logging
import os

logger = logging.getLogger(__name__)


def allow_more_open_files() -> None:
    """Raise this process's soft limit to its hard one, if half of what it allows is in use."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The system gives the lowest free number; the one that a file has just freed may be free.
    if soft in (hard, resource.RLIM_INFINITY) or not any(_is_open(soft // 2 + more) for more in (0, 1)):
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):  # macOS has a maximum below an infinite hard limit
        return
    logger.info("%d files may be open instead of %d, as half of these are", hard, soft)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def explain_too_many_open_files(error: BaseException) -> str | None:
    """One sentence where the limit is the reason of an error, None elsewhere.

    Of an error in a process that reads ahead only the text arrives, and not even that if it could not send it.
    """
    message = str(error)
    if not (
        (isinstance(error, OSError) and (error.errno == errno.EMFILE or f"[Errno {errno.EMFILE}]" in message))
        or (isinstance(error, RuntimeError) and message == "received 0 items of ancdata")
    ):
        return None
    name = getattr(error, "filename", None)
    undamaged = "no file is damaged" if name is None else f"{os.fsdecode(name)} is not damaged"
    allowed = _allowed()
    return (
        f"too many open files: {undamaged}, but a process may have {allowed or 'only so many'} open at a time, and "
        f"data of many languages needs more; `ulimit -n {max(8192, 4 * allowed)}` before the command allows that, as "
        "far as `ulimit -Hn` goes, which an administrator can raise"
    )


def _allowed() -> int:
    """The hard limit; 0 where the system has none or does not say."""
    try:
        import resource
    except ImportError:
        return 0
    return max(0, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
