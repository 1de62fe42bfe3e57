"""One process at a time in a folder: a lock that the system takes away when its holder ends, however it ends.

The lock is on a small file in the folder, which says who holds it. It is one of POSIX (``lockf``): processes that the
holder forks to read data do not inherit it, so that the next run need not wait for those of a killed one, and it
reaches other hosts through NFS.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from fairseq_compat.errors import UserError

logger = logging.getLogger(__name__)

NAME = ".training.lock"

#: Seconds in which another process may end: that of a run that was just killed, say.
PATIENCE = 3.0

_HELD = (errno.EACCES, errno.EAGAIN)
_UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


@contextmanager
def locked_folder(folder: str, option: str) -> Iterator[None]:
    """Hold the lock of a folder, which is made if need be; where the file system knows no locks, warn and go on.

    Args:
        folder: that one process may write into.
        option: the option that names it, for messages.

    Raises:
        UserError: another process holds the lock, or the folder cannot be made or written.
    """
    path = os.path.join(folder, NAME)
    try:
        os.makedirs(folder, exist_ok=True)
        descriptor = _locked_file(path, folder, option)
    except FileExistsError:
        raise UserError(f"{option} {folder} is a file; give a folder") from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(f"{option} {folder}: no space is left on the disk") from error
        raise UserError(f"{option} {folder or repr(folder)} cannot be written: {error.strerror}") from error
    try:
        yield
    finally:
        # In this order: who opened the file before finds that its name is gone, and makes another one.
        if descriptor is not None:
            with suppress(OSError):  # a lock's file that stays is taken over by the next run
                if _is_at(descriptor, path):
                    os.remove(path)
            os.close(descriptor)


def _locked_file(path: str, folder: str, option: str) -> int | None:
    """Return the lock's file, open and locked; None where there are no locks."""
    until = time.monotonic() + PATIENCE
    while True:
        # Never through a link, so that no other file can be meant.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        locked = False
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if locked := _is_at(descriptor, path):
                _say_who(descriptor)
                return descriptor
        except OSError as error:
            if error.errno in _UNSUPPORTED:
                logger.warning("%s %s: this file system has no locks (%s); see that no other training writes there",
                               option, folder, error.strerror)  # fmt: skip
                os.remove(path)
                return None
            if error.errno not in _HELD:
                raise
            if time.monotonic() > until:
                raise UserError(
                    f"{option} {folder} is in use: {_holder(descriptor)}; end that one, or give another folder"
                ) from None
        finally:
            if not locked:
                os.close(descriptor)
        time.sleep(0.1)


def _is_at(descriptor: int, path: str) -> bool:
    """Return whether an open file still has this name; whoever held its lock has removed it otherwise."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def _say_who(descriptor: int) -> None:
    who = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
    os.ftruncate(descriptor, 0)
    os.write(descriptor, json.dumps(who).encode() + b"\n")


def _holder(descriptor: int) -> str:
    """Return who holds the lock, in words."""
    try:
        who = json.loads(os.pread(descriptor, 4096, 0))
        holder = f"process {int(who['pid'])} on {who['host']} has been training there since {who['since']}"
    except (ValueError, KeyError, TypeError):  # it is about to write it
        return "another process is training there"
    return "".join(filter(str.isprintable, holder))
