"""The lines of a corpus, read straight from the archives it comes in: nothing is unpacked, memory does not grow.

A text is named by ``ARCHIVE!MEMBER``, or by a path alone. ``MEMBER`` may hold ``*`` for several members. ``@N`` at its
end takes the N-th column, from 1, of lines with tabs. A file that has all of this for its name is read itself. Archives
are .tar, .tgz, .tar.gz and .zip; members and files that end in .gz are unpacked on the way, of those in .sgm or .xml
the segments are read. The training texts of IWSLT, ``train.tags.*``, lose what describes a talk, except for its title
and summary. That archives are whole is checked when they are fetched.
"""

from __future__ import annotations

import fnmatch
import gzip
import os
import re
import tarfile
import zipfile
from collections.abc import Iterator
from typing import IO, cast

from fairseq_compat import UserError

#: For IWSLT, as in fairseq's scripts: lines that are left out, and marks around a title or summary.
_TALK = re.compile("<(?:url|talkid|keywords)>")
_TALK_MARK = re.compile("</?(?:title|description)>")
_SEGMENT = re.compile(r"<seg[^>]*>(.*?)</seg>", re.IGNORECASE | re.DOTALL)
#: What some programs take for the end of a line or token, and control characters: replaced by spaces.
_BREAKS = re.compile("[\x00-\x1f\x7f\x85\u2028\u2029\ufeff]+")


def read_text(name: str) -> Iterator[str]:
    """Yield the lines of a text; characters that some programs take for line ends become spaces."""
    archive, pattern, column = place_of(name)
    try:
        for member, stream in _members(archive, pattern):
            yield from _lines(member, stream, column)
    except UnicodeDecodeError as error:
        raise UserError(f"{name} is not UTF-8: {error}") from error


def place_of(name: str) -> tuple[str, str, int]:
    """Return the file of a text, its members' pattern ("" for the file itself), and its column (0 for whole lines)."""
    column = 0
    # Names of files may contain these marks, too.
    match = re.fullmatch(r"(.*)@(\d+)", name, re.DOTALL)
    if match and not os.path.exists(name):
        name, column = match[1], int(match[2])
    if "!" in name and not os.path.exists(name):
        archive, _, pattern = name.rpartition("!")
        return archive, pattern, column
    return name, "", column


def _members(archive: str, pattern: str) -> Iterator[tuple[str, IO[bytes]]]:
    """Open the members whose names match, one after the other; a plain file is its own member."""
    if not pattern:
        with open(archive, "rb") as file:
            yield archive, file
        return
    matched = False
    for name, stream in _all_members(archive):
        if fnmatch.fnmatchcase(name.removeprefix("./"), pattern):
            matched = True
            yield f"{archive}!{name}", stream
            # Without *, only one member matches; do not read the rest of a large archive.
            if "*" not in pattern:
                return
    if not matched:
        raise UserError(f"{archive} has no member {pattern}")


def _all_members(archive: str) -> Iterator[tuple[str, IO[bytes]]]:
    if not archive.endswith(".zip"):
        with tarfile.open(archive) as tar:
            yield from ((entry.name, cast(IO[bytes], tar.extractfile(entry))) for entry in tar if entry.isfile())
        return
    with zipfile.ZipFile(archive) as file:
        for name in sorted(file.namelist()):  # so that both sides of several members have one order
            with file.open(name) as stream:
                yield name, stream


def _lines(name: str, stream: IO[bytes], column: int) -> Iterator[str]:
    if name.endswith(".gz"):
        stream = cast(IO[bytes], gzip.GzipFile(fileobj=stream))
    kind = os.path.splitext(name.removesuffix(".gz"))[1]
    if kind in (".sgm", ".xml"):
        # A test set, read as sacreBLEU does. As in fairseq's scripts, IWSLT's XML gets plain apostrophes.
        text = stream.read().decode("utf-8")
        for segment in _SEGMENT.finditer(text.replace("\u2019", "'") if kind == ".xml" else text):
            yield one_line(segment[1])
        return
    talks = re.search(r"(?:^|[/!])train\.tags\.[^/]*$", name) is not None
    for line in stream:
        text = line.decode("utf-8")
        if talks:
            if _TALK.search(text):
                continue
            text = _TALK_MARK.sub("", text)
        if not column:
            yield one_line(text)
        # Empty lines have no columns.
        elif text.strip():
            yield one_line(text.split("\t")[column - 1])


def one_line(text: str) -> str:
    """Return a text without line breaks, control characters and surplus white space."""
    return " ".join(_BREAKS.sub(" ", text).split())
