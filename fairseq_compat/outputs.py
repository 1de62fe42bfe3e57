"""Where commands may write: one rule for every option that names an output.

A file that exists is replaced with ``--force`` only; a folder only if its marker names the same kind of folder, and
there is nothing else in it. Links, devices and what a command reads are never replaced.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from fairseq_compat import files
from fairseq_compat.errors import UserError
from fairseq_compat.files import NewFile, atomic_write
from fairseq_compat.versions import installed_version

#: The file in a folder that says which program made the folder, and what it is.
MARKER = "made_by.json"

_PROGRAM = "fairseq-depthwise"


def output_file(
    option: str, path: str, *, force: bool = False, inputs: Iterable[str] = (), stream: bool = False
) -> str:
    """Return ``path`` if a command may write a file there, or raise UserError; asked before anything is computed.

    ``inputs`` are read, so that they may not be the output; with ``stream`` a pipe or a terminal will do, too.
    """
    named, status = f"{option} {path!r}", _status(option, path)
    if path.endswith("/") or os.path.isdir(path):
        raise UserError(f"{named} is a folder; give the name of a file")
    files.require_unused(path)
    if status is None:
        return NewFile(path)
    for file in inputs if os.path.exists(path) else ():
        if os.path.exists(file) and os.path.samefile(file, path):
            raise UserError(f"{named} is a file that is read; give another name")
    if files.is_stream(path) and stream:
        return path
    if not stat.S_ISREG(status.st_mode):
        raise UserError(f"{named} is a link, a device or a pipe; give the name of a file")
    if not force:
        raise UserError(f"{named} exists; give another name, or --force to replace it")
    return path


def output_folder(option: str, path: str, kind: str, *, force: bool = False, inputs: Iterable[str] = ()) -> str:
    """Return where a command may put a folder, without a slash at the end, or raise UserError.

    With ``force`` a folder of the same ``kind``, such as ``export``, may be there, and is replaced as a whole, unless
    one of the ``inputs`` lies in it.
    """
    place = folder_path(option, path)
    if os.path.lexists(place):
        if not force:
            raise UserError(f"{option} {path!r} exists; give another name, or --force to replace it")
        for file in inputs:
            if os.path.dirname(os.path.realpath(file)) == place:
                raise UserError(f"{option} {path!r} has {file} in it, which is read; give another name")
        _require_replaceable(f"{option} {path!r}", place, kind)
    return place


def begin_folder(option: str, path: str, kind: str) -> str:
    """Return where a command may work in a folder, which is made: a new or empty one, or one of its ``kind``.

    Where there is something else, this is a UserError.
    """
    place = folder_path(option, path)
    os.makedirs(place, exist_ok=True)
    if not _marker(place, kind):
        if any(not name.endswith(files.UNFINISHED) for name in os.listdir(place)):
            raise UserError(f"{option} {path!r} exists and is no {kind}; give another name")
        write_marker(place, kind)
    return place


@contextmanager
def folder_written_whole(place: str, kind: str, *, replace: bool = False) -> Iterator[str]:
    """Yield a folder beside ``place``, of :func:`output_folder`, to write into; it gets its name at the end.

    A folder that is to be replaced is removed only after the new one stands.

    Raises:
        UserError: the disk is full, or the folder that is replaced has something else in it by now.
        OSError: there is something else by now.
    """
    aside = f"{files.beside(place)}.{os.urandom(8).hex()}{files.UNFINISHED}"
    before = f"{aside}-replaced"
    try:
        os.mkdir(aside)
        yield aside
        write_marker(aside, kind, files=sorted({*os.listdir(aside), MARKER}))
        if replace and os.path.lexists(place):
            _require_replaceable(place, place, kind)
            if files.exchange(aside, place):  # so that a process that is killed leaves one of them there
                before = aside
            else:
                os.rename(place, before)
        if before != aside:
            os.rename(aside, place)  # fails where a file or a folder with anything in it has appeared
        files.flush_folder(os.path.dirname(place))
        shutil.rmtree(before, ignore_errors=True)
    except BaseException as error:
        shutil.rmtree(aside, ignore_errors=True)
        if os.path.lexists(before) and not os.path.lexists(place):
            os.rename(before, place)
        if isinstance(error, UserError):
            raise UserError(str(error).replace(aside, place)) from error
        if files.is_full_disk(error):
            raise UserError(f"cannot write {place}: {error.strerror}") from error
        raise


def is_made_as(path: str, kind: str) -> bool:
    """Return whether this program made a folder, and as this kind."""
    return bool(_marker(path, kind))


def write_marker(folder: str, kind: str, **more: Any) -> None:
    """Write which program made a folder, and as which kind."""
    made_by = {"program": _PROGRAM, "version": installed_version(_PROGRAM), "kind": kind, **more}
    with atomic_write(os.path.join(folder, MARKER)) as file:
        file.write(json.dumps(made_by, indent=2).encode() + b"\n")


def _marker(folder: str, kind: str) -> dict[str, Any]:
    """Return the marker of a folder; empty if it has none, or is of another kind or program."""
    try:
        with open(os.path.join(folder, MARKER), encoding="utf-8") as file:
            marker = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    is_ours = isinstance(marker, dict) and (marker.get("program"), marker.get("kind")) == (_PROGRAM, kind)
    return marker if is_ours else {}


def _require_replaceable(named: str, folder: str, kind: str) -> None:
    """Raise UserError unless a folder is of a kind and has nothing in it that its marker does not name."""
    names = _marker(folder, kind).get("files")
    if not isinstance(names, list) or os.path.samefile(folder, os.curdir):
        raise UserError(f"{named} exists and is no {kind}, which --force would replace; give another name")
    # An export's files lie in it flat: a folder in it is another's, and so is a link.
    for entry in os.scandir(folder):
        if entry.name not in names or not entry.is_file(follow_symlinks=False):
            raise UserError(f"{named} has {entry.name!r} in it, which is none of its files; move that away")


def folder_path(option: str, path: str) -> str:
    """Return the absolute path of a folder without a slash at the end; there may be none yet.

    Raises:
        UserError: there is a link or a file, or the folder above cannot be written.
    """
    _status(option, path)
    head, tail = os.path.split(path.rstrip("/") or "/")
    has_name = tail not in ("", os.curdir, os.pardir)
    place = os.path.join(os.path.realpath(head), tail) if has_name else os.path.realpath(path)
    status = _status(option, place)
    if status is not None and not stat.S_ISDIR(status.st_mode):
        raise UserError(f"{option} {path!r} is a link or a file; give the name of a folder")
    return place


def _status(option: str, path: str) -> os.stat_result | None:
    """Return what is at a path; None where there is nothing but may be something."""
    if path in ("", "-"):
        raise UserError(f"{option} {path!r} is no name; write ./- if it is to be called so")
    parent = os.path.dirname(path.rstrip("/")) or os.curdir
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        status = None
    except OSError as error:
        raise UserError(f"{option} {path!r}: {error.strerror}") from None
    if not os.path.isdir(parent):
        raise UserError(f"{option} {path!r}: the folder {parent!r} does not exist")
    if not os.access(parent, os.W_OK | os.X_OK) and not files.is_stream(path):
        raise UserError(f"{option} {path!r}: the folder {parent!r} is not writable")
    return status
