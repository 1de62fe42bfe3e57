"""The lines of a corpus, read straight from the archives it comes in: nothing is unpacked, memory does not grow.

A text is named by ``ARCHIVE!MEMBER``, or by a path alone. ``MEMBER`` may hold ``*`` for several members. ``@N`` at its
end takes the N-th column, from 1, of lines with tabs. Archives are .tar, .tgz, .tar.gz and .zip; members and files that
end in .gz are unpacked on the way, of those in .sgm or .xml the segments are read. The training texts of IWSLT,
``train.tags.*``, lose what describes a talk, except for its title and summary.
"""

from __future__ import annotations

import fnmatch
import gzip
import os
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, cast

from fairseq_compat import UserError

_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError, zipfile.BadZipFile)
#: Of IWSLT, as fairseq's scripts treat it: lines that are left out, and marks around a title or summary.
_TALK = re.compile("<(?:url|talkid|keywords)>")
_TALK_MARK = re.compile("</?(?:title|description)>")
_SEGMENT = re.compile(r"<seg[^>]*>(.*?)</seg>", re.IGNORECASE | re.DOTALL)
#: Everything that some program takes for the end of a line or a token's end, and control characters: to a space.
_BREAKS = re.compile("[\x00-\x1f\x7f\x85\u2028\u2029\ufeff]+")


def read_text(name: str) -> Iterator[str]:
    """Yield the lines of a text, each in one piece: characters that some programs take for line ends become spaces.

    Raises:
        UserError: there is no such archive or member, it is damaged, or not UTF-8.
    """
    place, _, column = name.rpartition("@") if re.search(r"@\d+$", name) else (name, "", "")
    archive, _, pattern = (place, "", "") if "!" not in place or os.path.exists(place) else place.rpartition("!")
    try:
        for member, stream in _members(archive, pattern):
            yield from _lines(member, stream, int(column or 0))
    except _DAMAGED as error:
        raise UserError(f"{archive} is damaged or incomplete ({error}); delete it and fetch it again") from error
    except FileNotFoundError as error:
        raise UserError(f"{error.filename} does not exist") from error
    except OSError as error:
        raise UserError(f"{archive} cannot be read: {error.strerror or error}") from error


def _members(archive: str, pattern: str) -> Iterator[tuple[str, IO[bytes]]]:
    """Open the members whose names match, one after the other; a plain file is its own member."""
    if not pattern:
        with open(archive, "rb") as file:
            yield archive, file
        return
    matched = False
    for name, stream in _zip_members(archive) if archive.endswith(".zip") else _tar_members(archive):
        if fnmatch.fnmatchcase(name.removeprefix("./"), pattern):
            matched = True
            yield f"{archive}!{name}", stream
            if "*" not in pattern:
                return
    if not matched:
        raise UserError(f"{archive} has no member {pattern}")


def _tar_members(archive: str) -> Iterator[tuple[str, IO[bytes]]]:
    with tarfile.open(archive, "r:" if archive.endswith(".tar") else "r:gz", tarinfo=_Entry) as tar:
        for entry in tar:
            if entry.isfile() and (stream := tar.extractfile(entry)) is not None:
                yield entry.name, stream
        while tar.fileobj is not None and tar.fileobj.read(1 << 20):  # gzip's checksum comes last
            pass


class _Entry(tarfile.TarInfo):
    """A member's header. Where the next one is missing or damaged, tarfile by itself takes that for the end."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Entry:
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if bytes(buf) == bytes(tarfile.BLOCKSIZE):  # what stands behind the last member
                raise
            raise tarfile.ReadError(f"no member and no end where one should be: {error}") from error


def _zip_members(archive: str) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(archive) as file:
        for name in sorted(file.namelist(), key=_by_number):
            if not name.endswith("/"):
                with file.open(name) as stream:
                    yield name, stream


def _by_number(name: str) -> list[str | int]:
    """Sort Book2 before Book10: both sides of a corpus in several members come in the same order."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]


def _lines(name: str, stream: IO[bytes], column: int) -> Iterator[str]:
    if name.endswith(".gz"):
        stream = cast(IO[bytes], gzip.GzipFile(fileobj=stream))
    if name.removesuffix(".gz").endswith((".sgm", ".xml")):
        yield from _segments(name, stream)
        return
    talks = re.search(r"(?:^|[/!])train\.tags\.[^/]*$", name) is not None
    for number, line in enumerate(stream, start=1):
        text = _decode(name, number, line)
        if column:
            columns = text.split("\t")
            if text.strip() == "":
                continue
            if len(columns) < column:
                raise UserError(f"{name}, line {number}: {len(columns)} columns, and number {column} is asked for")
            text = columns[column - 1]
        if talks:
            if _TALK.search(text):
                continue
            text = _TALK_MARK.sub("", text)
        yield one_line(text)


def _segments(name: str, stream: IO[bytes]) -> Iterator[str]:
    """Yield the text of a test set in SGML or XML: what stands in its ``<seg>`` elements, as sacreBLEU reads it too.

    The XML files are IWSLT's; like fairseq's scripts, this writes their typographic apostrophe as the plain one.
    """
    text = _decode(name, 0, stream.read())
    if name.endswith(".xml"):
        text = text.replace("\u2019", "'")
    for segment in _SEGMENT.finditer(text):
        yield one_line(segment[1])


def _decode(name: str, number: int, line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        number = number or line.count(b"\n", 0, error.start) + 1
        raise UserError(f"{name} is not UTF-8: line {number} has the byte 0x{line[error.start]:02x}") from None


def one_line(text: str) -> str:
    """Return a text without line ends, control characters and surplus white space."""
    return " ".join(_BREAKS.sub(" ", text).split())
