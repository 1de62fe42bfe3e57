"""Fetches one file of a corpus: resumed where it stopped, checked, and under its name only when it is whole.

    python fetch.py NAME CHECKSUM URL... --to FOLDER

CHECKSUM is ``sha256:...``, ``md5:...``, or ``none`` where none was published: then archives are read to their end
instead. ``MIRROR``, a folder or a URL, is where files are looked for in place of the URLs. ``URL`` may be ``by-hand:``
and a sentence that says where the file can be had, for corpora that ask for a registration.
"""

from __future__ import annotations

import argparse
import errno
import fcntl
import hashlib
import http.client
import os
import shutil
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from step import run_step, say
from text_streams import read_to_the_end

from fairseq_compat import UserError
from fairseq_compat.files import copied_whole, written_whole

BLOCK = 1 << 20
#: Seconds without a byte after which a connection counts as broken.
TIMEOUT = 60
#: How often a connection may break without a byte having come, and the seconds to wait before each try.
WAITS = (1, 5, 20, 60)
BY_HAND = "by-hand:"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="the file's name")
    parser.add_argument("checksum", help="sha256:HEX, md5:HEX or none")
    parser.add_argument("urls", nargs="+", metavar="URL", help="where it is; tried in this order")
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER")
    options = parser.parse_args()
    fetch(options.name, options.checksum, options.urls, options.to, os.environ.get("MIRROR", ""))


def fetch(name: str, checksum: str, urls: list[str], folder: Path, mirror: str = "") -> None:
    """Make sure that ``folder/name`` is there and whole.

    Raises:
        UserError: it cannot be had, the disk is too full, or what came is not what was published.
    """
    path = folder / name
    if _found_right(path, checksum):
        return
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        keep = path.exists() and not _checked(path).exists()  # then somebody else has put it there
        if not path.exists():
            if mirror and "://" not in mirror:
                _copy(Path(mirror) / name, path)
            else:
                _download([f"{mirror.rstrip('/')}/{name}"] if mirror else urls, path)
        _check(path, checksum, keep=keep)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait while another recipe fetches into the same folder: both would write the same file."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(f"waiting for another process that fetches into {folder}")
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:
        pass  # a file system without locks
    try:
        yield
    finally:
        os.close(descriptor)


def _copy(source: Path, path: Path) -> None:
    if not source.is_file():
        raise UserError(f"MIRROR={source.parent} has no file {source.name}")
    require_space(path.parent, source.stat().st_size, f"a copy of {source}")
    say(f"copying {source}")
    copied_whole(source, path)


def _download(urls: list[str], path: Path) -> None:
    """Try the addresses in turn."""
    failures = []
    for url in urls:
        if url.startswith(BY_HAND):
            raise UserError(f"{path} is missing and cannot be fetched: {url.removeprefix(BY_HAND).strip()}")
        try:
            _download_from(url, path)
            return
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, OSError) and error.errno in _DISK:
                raise UserError(f"cannot write {path}: {error.strerror}; what has come is kept") from error
            failures.append(f"{url}: {getattr(error, 'reason', None) or error}")
    raise UserError(
        f"{path.name} cannot be fetched ({'; '.join(failures)}); what has come is kept, so run the same command again, "
        f"or put the file into {path.parent}, or set MIRROR to a folder or URL that has it"
    )


#: What a disk refuses with; every other OSError of a download is the network's.
_DISK = {
    errno.EACCES, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EISDIR, errno.ENOENT, errno.ENOSPC, errno.EPERM,
    errno.EROFS,
}  # fmt: skip


def _download_from(url: str, path: Path) -> None:
    """Fetch into ``path.part`` until it is whole, going on where a broken connection or an earlier run stopped."""
    part = path.with_name(path.name + ".part")
    origin = path.with_name(path.name + ".part.from")
    if os.path.lexists(part) and not origin.exists():  # ours has its origin beside it from before its first byte
        raise UserError(f"{part} is in the way, and was not fetched by this program; move it elsewhere")
    broken = 0
    while True:
        before = part.stat().st_size if part.exists() else 0
        try:
            if _receive(url, part, origin):
                break
            error: Exception = ConnectionError("the connection ended early")
        except urllib.error.HTTPError as failure:
            if failure.code < 500 and failure.code not in (408, 429):
                raise
            error = failure
        except (OSError, http.client.HTTPException) as failure:
            if isinstance(failure, OSError) and failure.errno in _DISK:
                raise
            error = failure
        came = (part.stat().st_size if part.exists() else 0) - before
        broken = 0 if came > 0 else broken + 1
        if broken > len(WAITS):
            raise error
        wait = WAITS[max(0, broken - 1)]
        say(f"{path.name}: {error}; trying again in {wait} s")
        time.sleep(wait)
    os.replace(part, path)
    origin.unlink(missing_ok=True)


def _receive(url: str, part: Path, origin: Path) -> bool:
    """One connection: append what is missing; whether the file is whole now."""
    have = part.stat().st_size if part.exists() else 0
    known_url, _, validator = origin.read_text().partition("\n") if origin.exists() else ("", "", "")
    request = urllib.request.Request(url, headers={"User-Agent": "fairseq-depthwise"})
    if have and known_url == url:
        request.add_header("Range", f"bytes={have}-")
        if validator:
            request.add_header("If-Range", validator)
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # nothing follows: it was whole already, or it is another file by now
            if (error.headers.get("Content-Range") or "").rpartition("/")[2] == str(have):
                return True
            part.unlink()
            return _receive(url, part, origin)
        raise
    with response:
        if response.status != 206:
            have = 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length is not None else None
        require_space(part.parent, (total or 0) - have, part.name.removesuffix(".part"))
        origin.write_text(f"{url}\n{_validator(response)}")
        with part.open("ab" if have else "wb") as file:
            for block in _with_progress(response, part.name.removesuffix(".part"), have, total):
                file.write(block)
                have += len(block)
            file.flush()
            os.fsync(file.fileno())
    return total is None or have >= total


def _validator(response: http.client.HTTPResponse) -> str:
    """What tells this version of the file from others, if the server says; a weak ETag cannot be used for ranges."""
    tag = response.headers.get("ETag") or ""
    return tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified") or ""


def _with_progress(response: http.client.HTTPResponse, name: str, have: int, total: int | None) -> Iterator[bytes]:
    """What comes, as it comes: a block that is waited for would be lost if the connection broke before its end."""
    from tqdm import tqdm

    often = 1 if sys.stderr.isatty() else 60
    with tqdm(
        desc=name, initial=have, total=total, unit="B", unit_scale=True, mininterval=often, delay=often, leave=False
    ) as bar:
        while block := response.read1(BLOCK):
            yield block
            bar.update(len(block))


def require_space(folder: Path, wanted: int, what: str) -> None:
    """Raise :class:`UserError` unless a folder's disk has that many bytes left."""
    free = shutil.disk_usage(folder).free
    if wanted > free:
        raise UserError(f"{what} needs {wanted / 1e9:.1f} GB in {folder}, and {free / 1e9:.1f} GB are free there")


def _check(path: Path, checksum: str, *, keep: bool) -> None:
    """Compare the checksum, or read an archive to its end; what was found right is not looked at again.

    Raises:
        UserError: the file is another or damaged; unless it is to ``keep``, as it was there before, it is removed, so
            that the next run fetches it anew.
    """
    if _found_right(path, checksum):
        return
    checked = _checked(path)
    kind, _, expected = checksum.partition(":")
    if kind == "none":
        fault = _fault(path)
    else:
        found = _digest(path, kind)
        fault = None if found == expected.lower() else f"it has the {kind} {found}, and {expected} was published"
    if fault is not None and os.environ.get("IGNORE_CHECKSUMS") != "1":
        checked.unlink(missing_ok=True)
        what_now = f"Put a whole one into {path.parent}, or remove it to have it fetched"
        if not keep:
            path.unlink()
            what_now = "It was removed; run the same command again to fetch it anew"
        replaced = "" if kind == "none" else ", with IGNORE_CHECKSUMS=1 if its owners have replaced it"
        raise UserError(f"{path.name} is not what it should be: {fault}. {what_now}{replaced}")
    with written_whole(checked) as file:
        file.write(_seal(path, checksum).encode())


def _found_right(path: Path, checksum: str) -> bool:
    checked = _checked(path)
    return path.exists() and checked.exists() and checked.read_text() == _seal(path, checksum)


def _checked(path: Path) -> Path:
    return path.with_name(path.name + ".checked")


def _seal(path: Path, checksum: str) -> str:
    """What tells a file that was checked from one that took its place."""
    state = path.stat()
    return f"{checksum} {state.st_size} {state.st_mtime_ns}"


def _fault(path: Path) -> str | None:
    try:
        read_to_the_end(path)
    except UserError as error:
        return str(error)
    return None


def _digest(path: Path, kind: str) -> str:
    digest = hashlib.new(kind)
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


if __name__ == "__main__":
    run_step(main)
