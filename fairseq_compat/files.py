"""Writing files so that a reader finds the old one or the whole new one, never half of it.

What is not finished lies beside its target, in a file of its own whose name cannot be a user's:
``.NAME.0123456789abcdef.fairseq-unfinished``. It is locked while it is written; the next writer of the same target
removes those that a killed process left, which nobody locks any more.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

from fairseq_compat.errors import UserError

#: The end of the names of what is being written, and of a folder that has been replaced and is to be removed.
UNFINISHED, REPLACED = "fairseq-unfinished", "fairseq-replaced"

#: Bytes of a target's name in these: a name may have 255.
_LONGEST = 200


class NewFile(str):
    """A path at which nothing stood when it was asked: :func:`atomic_write` does not replace what has come since."""

    __slots__ = ()


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a temporary file beside ``path``; on leaving, flush it to the disk and give it the name ``path``.

    If anything fails on the way the temporary file is removed and what stood at ``path`` before is untouched. A
    symbolic link is replaced, not what it points to. A pipe or a terminal is written into as it is.

    Raises:
        UserError: the folder does not exist, is not writable, or the disk or quota is full; ``path`` is a folder; or it
            is a :class:`NewFile` and exists.
    """
    path = os.fspath(path)
    aside = ""
    try:
        if is_stream(path):
            with open(path, "wb") as file:
                yield file
            return
        aside, descriptor = make_beside(path, _make_file)
        with open(aside, "wb", opener=lambda *_: descriptor) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            _name(aside, path)
        flush_folder(os.path.dirname(path) or ".")
    except BaseException as error:
        with suppress(FileNotFoundError):
            os.remove(aside)
        if (reason := reason_of(error, path)) is not None:
            before = "; the file that was there before is unchanged" if os.path.isfile(path) else ""
            raise UserError(f"cannot write {path}: {reason}{before}") from error
        raise


def copied_whole(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Copy ``source`` to ``target`` the same way, replacing ``target`` if it exists."""
    with open(source, "rb") as original, atomic_write(target) as copy:
        shutil.copyfileobj(original, copy, length=16 * 1024 * 1024)


def decoded(line: bytes, number: int, path: str) -> str:
    """Return a line of a text file, the first one (number 1) without a byte order mark; ``path`` ``-`` is stdin.

    Raises:
        UserError: it is not UTF-8.
    """
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        name = "stdin" if path == "-" else path
        raise UserError(f"{name} is not UTF-8: line {number} has the byte 0x{error.object[error.start]:02x}") from None


@contextmanager
def raising_later(file: IO[bytes]) -> Iterator[IO[bytes]]:
    """Yield a file for writers in C++, which end the whole process where a write raises while they clean up.

    What a write raises, Ctrl-C too, is raised on leaving; nothing is written after it.
    """
    later = _RaisingLater(file)
    try:
        yield later  # type: ignore[misc]  # what such writers call is there
    except Exception:
        if later.error is None:
            raise
    if later.error is not None:
        raise later.error


class _RaisingLater(io.RawIOBase):
    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.name = file.name
        self.error: BaseException | None = None

    def write(self, data: Any) -> int:
        self._try(lambda: self.file.write(data))
        return memoryview(data).nbytes

    def flush(self) -> None:
        self._try(self.file.flush)

    def _try(self, action: Callable[[], object]) -> None:
        try:
            if self.error is None and not self.file.closed:
                action()
        except BaseException as error:
            self.error = error

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self.file.seekable()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self.file.seek(offset, whence)

    def tell(self) -> int:
        return self.file.tell()


def is_stream(path: str) -> bool:
    """Return whether what is written to ``path`` is passed on, to a pipe or a terminal: there is nothing to replace."""
    if os.path.abspath(path).startswith(("/dev/fd/", "/dev/std", "/proc/self/fd/")):
        return os.path.exists(path)
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)


def make_beside(path: str, make: Callable[[str], int]) -> tuple[str, int]:
    """Make what is to become ``path`` under a name of its own beside it, locked until it is closed.

    Args:
        path: the target.
        make: makes it exclusively and opens it, given its name.

    Returns:
        the name, and the descriptor that holds the lock.
    """
    remove_leftovers(path, UNFINISHED)
    while True:
        aside = name_beside(path, UNFINISHED)
        descriptor = make(aside)
        with suppress(OSError):  # a file system without locks: then leftovers stay
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.path.lexists(aside):
            return aside, descriptor
        os.close(descriptor)  # another process took it for a leftover before it was locked


def name_beside(path: str, ending: str) -> str:
    """Return a name beside ``path`` that nothing has."""
    return f"{_beginning(path)}{os.urandom(8).hex()}.{ending}"


def is_leftover(name: str) -> bool:
    """Return whether a name is one that a process that was killed may have left."""
    return re.search(rf"\.[0-9a-f]{{16}}\.({UNFINISHED}|{REPLACED})\Z", name) is not None


def remove_leftovers(path: str, ending: str, *, is_ours: Callable[[str], bool] = lambda folder: False) -> None:
    """Remove what killed processes left beside ``path``; what another process is writing is locked, and stays.

    Args:
        path: the target.
        ending: of the names.
        is_ours: asked about folders.
    """
    folder, beginning = os.path.split(_beginning(path))
    try:
        names = os.listdir(folder or ".")
    except OSError:
        return
    for name in names:
        if not (name.startswith(beginning) and is_leftover(name) and name.endswith(ending)):
            continue
        left = os.path.join(folder, name)
        try:
            descriptor = os.open(left, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mode = os.fstat(descriptor).st_mode
            if stat.S_ISREG(mode):
                os.unlink(left)
            elif stat.S_ISDIR(mode) and is_ours(left):
                shutil.rmtree(left, ignore_errors=True)
        except OSError:
            pass  # locked, or gone
        finally:
            os.close(descriptor)


def reason_of(error: BaseException | None, path: str) -> str | None:
    """Return words for the failures that are the machine's state rather than a defect; None for all others.

    Args:
        error: what was raised, perhaps while another error was handled.
        path: what was written; errors that name another file are none of it.
    """
    ours = (path, _beginning(path))
    while error is not None:
        if isinstance(error, OSError) and (error.filename is None or str(error.filename).startswith(ours)):
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                return "no space is left on the disk"
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return "its folder does not exist"
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                return "the folder is not writable"
            if error.errno == errno.EFBIG:
                return "the file would be larger than the limit that is set (ulimit -f)"
            if error.errno == errno.ENAMETOOLONG:
                return "its name is too long"
            if error.errno == errno.EISDIR:
                return "it is a folder"
            if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
                return "another process has written it since this one started"
        error = error.__cause__ or error.__context__
    return None


def flush_folder(folder: str) -> None:
    """Make the renaming itself durable; systems that cannot open a folder for this do without."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def _beginning(path: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{os.fsdecode(os.fsencode(name)[:_LONGEST])}.")


def _make_file(name: str) -> int:
    return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def _name(aside: str, path: str) -> None:
    if not isinstance(path, NewFile):
        os.replace(aside, path)
        return
    try:
        os.link(aside, path)  # asks whether the name is free and takes it, in one step
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from None
        os.rename(aside, path)
    else:
        os.remove(aside)
