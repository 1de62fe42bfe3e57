"""Writing files so that a reader finds the old one or the whole new one, never half of it.

An unfinished file lies beside its target, as ``.NAME.fairseq-unfinished``. It is locked while it is written; one that a
killed process left is removed by the next writer of the same target.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, TypeGuard

from fairseq_compat.errors import UserError

#: Suffix of the names of files that are being written.
UNFINISHED = ".fairseq-unfinished"

#: Error numbers of a write for which there is no room: on the disk, in the user's quota, in a file (``ulimit -f``).
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

#: Arguments of renameat2 (Linux): relative to the current folder, and exchange the names.
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


class NewFile(str):
    """A path that did not exist when it was checked: :func:`atomic_write` does not replace a file created since."""

    __slots__ = ()


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a temporary file beside ``path``; on leaving, flush it to the disk and give it the name ``path``.

    If anything fails, the old file is untouched. A link is replaced; a pipe or a terminal is written into.

    Raises:
        UserError: the disk is full; another process is writing the same file; or it is a :class:`NewFile` and exists.
    """
    path = os.fspath(path)
    aside = ""
    try:
        if is_stream(path):
            with open(path, "wb") as file:
                yield file
            return
        aside, descriptor = _open_aside(path)
        with open(aside, "wb", opener=lambda *_: descriptor) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if isinstance(path, NewFile) and os.path.lexists(path):
                raise UserError(f"{path} was written by another process meanwhile; give another name")
            # Without locks, another process may have taken this file for a leftover, and made its own.
            if not _is_at(descriptor, aside):
                aside = ""  # which is not removed below
                raise UserError(_in_use(path))
            os.replace(aside, path)
        flush_folder(os.path.dirname(path) or ".")
    except BaseException as error:
        with suppress(FileNotFoundError):
            os.remove(aside)
        # torch.save continues after a write has failed, and ends in a RuntimeError about the position in its archive;
        # the failure itself is the context of that error.
        first = error.__context__ if isinstance(error, RuntimeError) else None
        cause = first if isinstance(first, (OSError, KeyboardInterrupt, SystemExit)) else error
        if is_full_disk(cause):
            raise UserError(f"cannot write {path}: {cause.strerror}") from error
        if cause is not error:
            raise cause from None
        raise


def is_full_disk(error: BaseException) -> TypeGuard[OSError]:
    """Return whether an error comes from writing to a full disk; errors of opening a file have its name."""
    return isinstance(error, OSError) and error.filename is None and error.errno in NO_ROOM


def beside(path: str) -> str:
    """Return the prefix of temporary names for ``path``, in the same folder, so that they can be renamed to it."""
    folder, name = os.path.split(path)
    # A name may have 255 bytes: 200 leave room for what follows.
    return os.path.join(folder, f".{os.fsdecode(os.fsencode(name)[:200])}")


def _open_aside(path: str) -> tuple[str, int]:
    """Open a new file that is to become ``path``, and lock it; return its name and its descriptor.

    Raises:
        UserError: another process is writing the same file.
    """
    aside = beside(path) + UNFINISHED
    while True:
        require_unused(path, remove=True)
        try:
            # O_EXCL: a new file, whose mode and owner are this process's, and not those of a leftover.
            descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except FileExistsError:  # another process was faster
            continue
        with suppress(OSError):  # a file system without locks
            # Between opening and locking it, another process may take it for a leftover, lock it and remove it.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if _is_at(descriptor, aside):
            return aside, descriptor
        os.close(descriptor)  # it was removed: once more


def require_unused(path: str, *, remove: bool = False) -> None:
    """Raise UserError if another process is writing what is to become ``path``.

    With ``remove``, an unfinished file that a killed process has left is removed.
    """
    aside = beside(path) + UNFINISHED
    try:
        if not stat.S_ISREG(os.lstat(aside).st_mode):  # a link or a pipe, which this function would open
            if remove:
                os.remove(aside)
            return
        # The flags hold if it becomes a link or a pipe now.
        descriptor = os.open(aside, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        try:
            # The system releases the lock of a killed process.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(_in_use(path)) from None
        except OSError:  # a file system without locks
            pass
        if remove and _is_at(descriptor, aside):
            os.remove(aside)
    finally:
        os.close(descriptor)


def _is_at(descriptor: int, path: str) -> bool:
    """Return whether an open file is the one that has the name ``path`` now."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def _in_use(path: str) -> str:
    return f"{path} is being written by another process; wait until that ends, or give another name"


def copied_whole(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Copy ``source`` to ``target`` with :func:`atomic_write`, replacing ``target`` if it exists."""
    with open(source, "rb") as original, atomic_write(target) as copy:
        shutil.copyfileobj(original, copy, length=16 * 1024 * 1024)


def require_file(path: str | os.PathLike[str]) -> None:
    """Raise UserError for a pipe, whose reader might wait forever, and for a device, which might fill memory."""
    if is_stream(os.fspath(path)):
        raise UserError(f"{os.fspath(path)} is a pipe or a device; give a file")


def is_stream(path: str) -> bool:
    """Return whether ``path`` is a pipe or a terminal, which passes on what is written: there is nothing to replace."""
    # Open files of this process, such as /dev/stdout and the shell's >(command): even one on disk is written into.
    if os.path.abspath(path).startswith(("/dev/fd/", "/dev/std", "/proc/self/fd/")):
        return os.path.exists(path)
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)


def exchange(first: str, second: str) -> bool:
    """Exchange the names of two folders in one step; return False if the system cannot."""
    try:
        renameat2 = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):  # no renameat2 (macOS, old musl), or no library to load (Windows)
        return False
    paths = os.fsencode(first), os.fsencode(second)
    # Not every file system has it: NFS refuses the flag.
    return bool(renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0)


def flush_folder(folder: str) -> None:
    """Make a renaming durable, on systems that can open a folder for this."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
