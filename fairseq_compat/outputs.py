"""Where commands may write: one rule for every option that names an output.

A file that exists is replaced only with ``--force``; so is a folder, if its marker names the same kind of folder and it
contains nothing but the files of the marker. Links, devices and a command's inputs are never replaced.
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

#: Name of the file that says which program made the folder, of which kind it is, and which files are its own.
MARKER = "made_by.json"

_PROGRAM = "fairseq-depthwise"


def output_file(
    option: str, path: str, *, force: bool = False, inputs: Iterable[str] = (), stream: bool = False
) -> str:
    """Return ``path`` if a command may write a file there; else raise UserError. Call it before anything is computed.

    ``inputs`` are files that the command reads, which may not be the output; with ``stream`` a pipe or a terminal will
    do, too.
    """
    named, status = f"{option} {path!r}", _status(option, path)
    if path.endswith("/") or os.path.isdir(path):
        raise UserError(f"{named} is a folder; give the name of a file")
    files.require_unused(path)
    if status is None:
        return NewFile(path)
    # A link to nothing cannot be compared; it is refused below.
    for file in inputs if os.path.exists(path) else ():
        if os.path.exists(file) and os.path.samefile(file, path):
            raise UserError(f"{named} is an input of this command; give another name")
    if files.is_stream(path) and stream:
        return path
    if not stat.S_ISREG(status.st_mode):
        raise UserError(f"{named} is a link, a device or a pipe; give the name of a file")
    if not force:
        raise UserError(f"{named} exists; give another name, or --force to replace it")
    return path


def output_folder(option: str, path: str, kind: str, *, force: bool = False, inputs: Iterable[str] = ()) -> str:
    """Return where a command may put a folder, without a slash at the end, or raise UserError.

    With ``force`` a folder of the same ``kind``, such as ``export``, may be there, and will be replaced as a whole,
    unless it contains one of the ``inputs``.
    """
    place = folder_path(option, path)
    if os.path.lexists(place):
        if not force:
            raise UserError(f"{option} {path!r} exists; give another name, or --force to replace it")
        for file in inputs:
            if os.path.dirname(os.path.realpath(file)) == place:
                raise UserError(f"{option} {path!r} contains the input {file}; give another name")
        _require_replaceable(f"{option} {path!r}", place, kind)
    return place


def make_folder(option: str, path: str) -> None:
    """Make a folder that is added to, unless it is there; raise UserError if it cannot be made."""
    try:
        os.makedirs(path, exist_ok=True)
    except FileExistsError:
        raise UserError(f"{option} {path} is not a folder; give another name") from None
    except OSError as error:
        raise UserError(f"{option} {path} cannot be made ({error.strerror}); give a folder elsewhere") from error


def begin_folder(option: str, path: str, kind: str) -> str:
    """Make a folder for a command to work in, or take one of the same ``kind``, with its files; return its path.

    Raises:
        UserError: there is something else.
    """
    place = folder_path(option, path)
    os.makedirs(place, exist_ok=True)
    if not _marker(place, kind):
        # A killed process may have left its unfinished marker.
        if any(not name.endswith(files.UNFINISHED) for name in os.listdir(place)):
            raise UserError(f"{option} {path!r} exists and is no {kind}; give another name")
        write_marker(place, kind)
    return place


@contextmanager
def folder_written_whole(place: str, kind: str, *, replace: bool = False) -> Iterator[str]:
    """Yield a folder beside ``place``, of :func:`output_folder`, to write into; at the end it is renamed to ``place``.

    A folder that is to be replaced is removed only after the new one is there.

    Raises:
        UserError: the disk is full, or the folder to be replaced contains something else by now.
        OSError: there is something else at ``place`` by now.
    """
    aside = f"{files.beside(place)}.{os.urandom(8).hex()}{files.UNFINISHED}"
    before = f"{aside}-replaced"  # the name of the earlier folder until it is removed
    try:
        os.mkdir(aside)
        yield aside
        write_marker(aside, kind, files=sorted({*os.listdir(aside), MARKER}))
        if replace and os.path.lexists(place):
            _require_replaceable(place, place, kind)  # again: the command may have run for hours
            if files.exchange(aside, place):  # if it is killed here, one of them is at its place
                before = aside
            else:
                os.rename(place, before)
        if before != aside:
            os.rename(aside, place)  # fails if a file, or a folder that is not empty, has appeared
        files.flush_folder(os.path.dirname(place))
        shutil.rmtree(before, ignore_errors=True)
    except BaseException as error:
        shutil.rmtree(aside, ignore_errors=True)
        if os.path.lexists(before) and not os.path.lexists(place):
            os.rename(before, place)
        # Files in it were written under its temporary name.
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
    """Raise UserError unless a folder is of this kind and contains only files that its marker names."""
    names = _marker(folder, kind).get("files")  # missing in a folder of begin_folder, which is never replaced
    if not isinstance(names, list) or os.path.samefile(folder, os.curdir):
        raise UserError(f"{named} exists and is no {kind}, which --force would replace; give another name")
    # Exports have neither subfolders nor links: these are the user's.
    for entry in os.scandir(folder):
        if entry.name not in names or not entry.is_file(follow_symlinks=False):
            raise UserError(f"{named} contains {entry.name!r}, which is not one of its files; move that away")


def folder_path(option: str, path: str) -> str:
    """Return the absolute path of a folder without a slash at the end; there may be none yet.

    Raises:
        UserError: there is a link or a file, or the folder above cannot be written.
    """
    _status(option, path)
    head, tail = os.path.split(path.rstrip("/") or "/")
    # The folder above is resolved, but not the last part: a link there is refused below.
    has_name = tail not in ("", os.curdir, os.pardir)
    place = os.path.join(os.path.realpath(head), tail) if has_name else os.path.realpath(path)
    status = _status(option, place)
    if status is not None and not stat.S_ISDIR(status.st_mode):
        raise UserError(f"{option} {path!r} is a link or a file; give the name of a folder")
    return place


def _status(option: str, path: str) -> os.stat_result | None:
    """Return the status of what is at a path; None if there is nothing, and something can be made there."""
    if path in ("", "-"):  # "-" means stdin or stdout in other programs
        raise UserError(f"{option} {path!r} is not a name; write ./- if it is to be called so")
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
