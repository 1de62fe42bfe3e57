"""What commands may write to: one rule for every option that names a file or a folder to make.

A file that exists is replaced with ``--force`` only, a folder only if it has the marker of what it is to be replaced
by and nothing in it that another has put there. Links, devices and what a command reads are never replaced.
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
    """Return ``path`` if a command may write a file there; asked before anything is computed.

    Args:
        option: the command line's, for the error.
        path: as given.
        force: the file may exist.
        inputs: files that are read, which the output may not be.
        stream: a pipe or a terminal will do, too.

    Raises:
        UserError: it may not.
    """
    status = _status(option, path, "file")
    named = f"{option} {_shown(path)}"
    if path == "-":
        raise UserError(f"{named} is no name of a file here; write ./- if a file is to be called so")
    if os.path.isdir(path) or path.endswith("/"):
        raise UserError(f"{named} is a folder; give the name of a file")
    if status is None:
        return NewFile(path)
    if any(os.path.exists(given) and os.path.exists(path) and os.path.samefile(given, path) for given in inputs):
        raise UserError(f"{named} is a file that is read; give another name")
    if files.is_stream(path):
        if stream:
            return path
        raise UserError(f"{named} is a device or a pipe; give the name of a file")
    if stat.S_ISLNK(status.st_mode):
        raise UserError(f"{named} is a symbolic link, to {_shown(os.readlink(path))}; name the file itself")
    if not stat.S_ISREG(status.st_mode):
        raise UserError(f"{named} is a device; give the name of a file")
    if not force:
        raise UserError(f"{named} exists; give another name, or --force to replace it")
    return path


def output_folder(option: str, path: str, kind: str, *, force: bool = False) -> str:
    """Return where a command may put a folder, without a slash at the end; what is there is replaced as a whole.

    Args:
        option: the command line's, for the error.
        path: as given.
        kind: what the folder is to be, as ``export``.
        force: a folder of that kind may be there.

    Raises:
        UserError: nothing may be put there.
    """
    named, place, status = _folder(option, path)
    if status is not None:
        if not force:
            raise UserError(f"{named} exists; give another name, or --force to replace it")
        if (problem := _why_not_replaced(place, kind)) is not None:
            raise UserError(f"{named} {problem}")
        if os.path.samefile(place, os.curdir):
            raise UserError(f"{named} is the folder in which the command was started; start it elsewhere")
    return place


def working_folder(option: str, path: str, kind: str) -> str:
    """Return where a command may work in a folder: a new one, an empty one, or one in which it has worked before.

    Args:
        option: the command line's, for the error.
        path: as given.
        kind: what is in the folder, as ``probe``.

    Raises:
        UserError: there is something else.
    """
    named, place, status = _folder(option, path)
    if status is not None and not _is_begun(place, kind):
        raise UserError(f"{named} exists and is no {kind}; give another name")
    return place


def begin_folder(option: str, path: str, kind: str) -> str:
    """Do as :func:`working_folder`, and make the folder and its marker where they are missing."""
    place = working_folder(option, path, kind)
    try:
        os.makedirs(place, exist_ok=True)
        if not _marker(place, kind):
            _write_marker(place, kind)
    except OSError as error:
        if (reason := files.reason_of(error, place)) is None:
            raise
        raise UserError(f"{option} {_shown(path)} cannot be made: {reason}") from error
    return place


@contextmanager
def folder_written_whole(place: str, kind: str, *, replace: bool = False) -> Iterator[str]:
    """Yield a folder beside ``place`` to write into, which gets its name at the end.

    Args:
        place: of :func:`output_folder`.
        kind: as there.
        replace: a folder of that kind; it is renamed, and removed only after the new one stands.

    Raises:
        UserError: it cannot be written, or there is something else by now.
    """
    aside = ""
    try:
        files.remove_leftovers(place, files.UNFINISHED, is_ours=lambda folder: _is_begun(folder, kind))
        aside, descriptor = files.make_beside(place, _make_folder)
        try:
            _write_marker(aside, kind)  # at first, so that what a kill leaves is known
            yield aside
            _write_marker(aside, kind, sorted({*os.listdir(aside), MARKER}))
            _put(aside, place, kind, replace=replace)
        finally:
            os.close(descriptor)
    except BaseException as error:
        if aside:
            shutil.rmtree(aside, ignore_errors=True)
        if isinstance(error, UserError):
            raise UserError(str(error).replace(aside, place) if aside else str(error)) from error
        if (reason := files.reason_of(error, place)) is not None:
            raise UserError(f"cannot write {place}: {reason}") from error
        raise


def _put(aside: str, place: str, kind: str, *, replace: bool) -> None:
    before = None
    if replace and os.path.lexists(place):
        before = files.name_beside(place, files.REPLACED)
        os.rename(place, before)
    try:
        if before is not None and (problem := _why_not_replaced(before, kind)) is not None:
            raise UserError(f"{place} {problem}")
        os.rename(aside, place)  # fails where a file or a folder with anything in it has appeared
    except BaseException:
        if before is not None:
            os.rename(before, place)
        raise
    files.flush_folder(os.path.dirname(place))
    files.remove_leftovers(place, files.REPLACED, is_ours=lambda folder: _why_not_replaced(folder, kind) is None)


def _make_folder(name: str) -> int:
    os.mkdir(name)
    return os.open(name, os.O_RDONLY | os.O_CLOEXEC)


# --- the marker ------------------------------------------------------------------------------------------------------


def _write_marker(folder: str, kind: str, names: list[str] | None = None) -> None:
    made_by: dict[str, Any] = {"program": _PROGRAM, "version": installed_version(_PROGRAM), "kind": kind}
    if names is not None:
        made_by["files"] = names
    with atomic_write(os.path.join(folder, MARKER)) as file:
        file.write(json.dumps(made_by, indent=2).encode() + b"\n")


def _marker(folder: str, kind: str) -> dict[str, Any]:
    """Return the marker of a folder; empty if it has none, or is of another kind or program."""
    try:
        with open(os.path.join(folder, MARKER), encoding="utf-8") as file:
            marker = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(marker, dict) or marker.get("program") != _PROGRAM or marker.get("kind") != kind:
        return {}
    return marker


def _is_begun(folder: str, kind: str) -> bool:
    """Return whether a folder has the marker, or nothing but what a process left that was killed as it wrote it."""
    return bool(_marker(folder, kind)) or all(map(files.is_leftover, os.listdir(folder)))


def _why_not_replaced(folder: str, kind: str) -> str | None:
    """Return the end of a sentence about a folder that may not be replaced; None for one that may."""
    marker = _marker(folder, kind)
    names = marker.get("files")
    if not isinstance(names, list):
        return f"exists and is no {kind}, which --force would replace; give another name"
    # An export's files lie in it flat: a folder in it is another's, and so is a link.
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.name not in names or not entry.is_file(follow_symlinks=False):
            return f"is an {kind} with {_shown(entry.name)} in it, which is none of its files; move that elsewhere"
    return None


# --- what is at a path -----------------------------------------------------------------------------------------------


def _folder(option: str, path: str) -> tuple[str, str, os.stat_result | None]:
    """Return how a folder is named in errors, its absolute path without a slash at the end, and what is there."""
    _status(option, path, "folder")
    named = f"{option} {_shown(path)}"
    if path == "-":
        raise UserError(f"{named} is no name of a folder here; write ./- if a folder is to be called so")
    stripped = path.rstrip("/") or "/"
    head, tail = os.path.split(stripped)
    has_name = tail not in ("", os.curdir, os.pardir)
    place = os.path.join(os.path.realpath(head), tail) if has_name else os.path.realpath(stripped)
    status = _status(option, place, "folder")
    if status is not None and stat.S_ISLNK(status.st_mode):
        raise UserError(f"{named} is a symbolic link, to {_shown(os.readlink(place))}; name the folder itself")
    if status is not None and not stat.S_ISDIR(status.st_mode):
        raise UserError(f"{named} is a file; give the name of a folder")
    return named, place, status


def _status(option: str, path: str, wanted: str) -> os.stat_result | None:
    """Return what is at a path; None where there is nothing but may be something."""
    if not path:
        raise UserError(f"{option} is empty; give the name of the {wanted} to write")
    named = f"{option} {_shown(path)}"
    parent = os.path.dirname(path.rstrip("/")) or os.curdir
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        status = None
    except OSError as error:
        raise UserError(f"{named}: {os.strerror(error.errno or 0).lower()}") from None
    if not os.path.isdir(parent):
        raise UserError(f"{named}: the folder {_shown(parent)} does not exist")
    if not os.access(parent, os.W_OK | os.X_OK) and not files.is_stream(path):
        raise UserError(f"{named}: the folder {_shown(parent)} is not writable")
    return status


def _shown(path: str) -> str:
    """Return a path in a sentence, on one line."""
    return path if path.isprintable() else repr(path)
