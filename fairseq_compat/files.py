"""Writing files so that a reader finds the old one or the whole new one, never half of it."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from fairseq_compat.errors import UserError


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a temporary file beside ``path``; on leaving, flush it to the disk and give it the name ``path``.

    If anything fails on the way the temporary file is removed and what stood at ``path`` before is untouched.

    Raises:
        UserError: the folder does not exist, is not writable, or the disk or quota is full.
    """
    path = os.fspath(path)
    aside = f"{path}.tmp"  # one name for good: what a killed process left is overwritten, not collected
    try:
        with open(aside, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
        _flush_folder(os.path.dirname(path) or ".")
    except BaseException as error:
        if os.path.exists(aside):
            os.remove(aside)
        if (reason := _reason(error)) is not None:
            before = "; the file that was there before is unchanged" if os.path.exists(path) else ""
            raise UserError(f"cannot write {path}: {reason}{before}") from error
        raise


def copied_whole(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Copy ``source`` to ``target`` the same way, replacing ``target`` if it exists."""
    with open(source, "rb") as original, written_whole(target) as copy:
        shutil.copyfileobj(original, copy, length=16 * 1024 * 1024)


def _reason(error: BaseException | None) -> str | None:
    """Words for the failures that are the machine's state rather than a defect; None for all others."""
    # torch.save reports a full disk as a RuntimeError raised while the OSError was being handled.
    while error is not None:
        if isinstance(error, OSError):
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                return "no space is left on the disk"
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return "its folder does not exist"
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                return "the folder is not writable"
            if error.errno == errno.EFBIG:
                return "the file would be larger than the limit that is set (ulimit -f)"
        error = error.__cause__ or error.__context__
    return None


def _flush_folder(folder: str) -> None:
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
