"""What is fetched is whole and the right file, or not there; it comes from a mirror too, and disks may be full."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import resource
import subprocess
import sys
import tarfile
import zipfile
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import fetch as fetching
import pytest
from fetch_runs import CONTENT, LIB, SUM, command, ended, fetched, left, public_folder
from mirror_server import Fault, MirrorServer

from fairseq_compat import UserError


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[MirrorServer]:
    with MirrorServer(public_folder(tmp_path)) as server:
        yield server


@pytest.fixture
def to(tmp_path: Path) -> Path:
    return tmp_path / "downloads"


@pytest.mark.parametrize("kind", ["sha256", "md5"])
def test_wrong_checksum(kind: str, mirror: MirrorServer, to: Path) -> None:
    published = hashlib.new(kind, CONTENT).hexdigest()
    wrong = hashlib.new(kind, bytes(byte ^ 255 for byte in CONTENT)).hexdigest()
    mirror.faults["data.bin"] = Fault(wrong_bytes=True)
    said = fetched(mirror, to, f"{kind}:{published}")
    assert f"it has the {kind} {wrong}, and {published} was published. It was removed" in said
    assert "IGNORE_CHECKSUMS=1" in said
    assert left(to) == []
    mirror.faults.clear()
    assert fetched(mirror, to, f"{kind}:{published.upper()}") == ""
    assert (to / "data.bin").read_bytes() == CONTENT


def test_a_file_that_somebody_put_there_is_theirs_to_remove(mirror: MirrorServer, to: Path) -> None:
    to.mkdir()
    (to / "data.bin").write_bytes(b"mine")
    assert "Put a whole one into" in fetched(mirror, to, SUM)
    assert (to / "data.bin").read_bytes() == b"mine"


def test_owners_have_replaced_it(mirror: MirrorServer, to: Path) -> None:
    assert fetched(mirror, to, "md5:" + "0" * 32, IGNORE_CHECKSUMS="1") == ""
    assert (to / "data.bin").read_bytes() == CONTENT


def tar_of(mode: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        for name in "ab":
            member = tarfile.TarInfo(name)
            member.size = 51_200
            archive.addfile(member, io.BytesIO(CONTENT[: member.size]))
    return file.getvalue()


def zip_of() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a", CONTENT)
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        # A compressed one in its trailer and in its middle.
        ("a.tgz", (-3, -8, 50_000)),
        ("a.tar.gz", (-3, 50_000)),
        ("a.gz", (-3, -8, 50_000)),
        ("a.zip", (-1, 50_000)),
        # A tar between its members, after the last, in a header and in a member.
        ("a.tar", (512 + 51_200, 2 * (512 + 51_200), 512 + 51_200 + 100, 50_000)),
    ],
)
def test_archives_without_a_published_checksum(name: str, ends: tuple[int, ...], tmp_path: Path) -> None:
    public, to = tmp_path / "public", tmp_path / "downloads"
    public.mkdir()
    content = {
        "a.tgz": lambda: tar_of("w:gz"),
        "a.tar.gz": lambda: tar_of("w:gz"),
        "a.gz": lambda: gzip.compress(CONTENT),
        "a.zip": zip_of,
        "a.tar": lambda: tar_of("w"),
    }[name]()
    for end in ends:
        (public / name).write_bytes(content[:end])
        with pytest.raises(UserError, match=rf"{name} is not what it should be: .*incomplete .*was removed"):
            fetching.fetch(name, "none", ["http://nowhere"], to, str(public))
        assert left(to) == []
    if name != "a.tar":
        (public / name).write_bytes(content[:40_000] + b"wrong" + content[40_005:])
        with pytest.raises(UserError, match=f"{name} is not what it should be"):
            fetching.fetch(name, "none", ["http://nowhere"], to, str(public))
    (public / name).write_bytes(content)
    fetching.fetch(name, "none", ["http://nowhere"], to, str(public))
    assert left(to) == [name, f"{name}.checked"]


def test_mirror(mirror: MirrorServer, to: Path) -> None:
    nowhere = "http://127.0.0.1:9/data.bin"
    for place in (str(mirror.folder), mirror.url, f"{mirror.url}/"):
        assert ended(command("data.bin", SUM, nowhere, "--to", to, MIRROR=place))[0] == 0
        assert (to / "data.bin").read_bytes() == CONTENT
        assert left(to) == ["data.bin", "data.bin.checked"]
        (to / "data.bin").unlink()
    assert mirror.requests == [("data.bin", None)] * 2
    status, said = ended(command("other.bin", SUM, nowhere, "--to", to, MIRROR=str(mirror.folder)))
    assert (status, said) == (1, f"error: MIRROR={mirror.folder} has no file other.bin")


def test_by_hand(mirror: MirrorServer, to: Path) -> None:
    hint = "by-hand: register at home.org, and put it there"
    status, said = ended(command("data.bin", SUM, hint, "--to", to))
    assert (status, said) == (1, f"error: {to}/data.bin is missing and cannot be fetched: {hint[9:]}")
    (to / "data.bin").write_bytes(CONTENT[:-1])
    status, said = ended(command("data.bin", SUM, hint, "--to", to))
    assert status == 1
    assert "is not what it should be" in said
    assert "removed" not in said
    assert (to / "data.bin").exists(), "what somebody fetched by hand is theirs to remove"
    (to / "data.bin").write_bytes(CONTENT)
    assert ended(command("data.bin", SUM, hint, "--to", to))[0] == 0
    (to / "data.bin").unlink()
    assert ended(command("data.bin", SUM, hint, "--to", to, MIRROR=mirror.url))[0] == 0


def test_disk_too_small(mirror: MirrorServer, to: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda folder: namedtuple("usage", "free")(len(CONTENT) - 1))
    for place in ("", str(mirror.folder)):
        with pytest.raises(UserError, match=r"needs 0\.0 GB in .*downloads, and 0\.0 GB are free there"):
            fetching.fetch("data.bin", SUM, [f"{mirror.url}/data.bin"], to, place)
        assert left(to) == []
    monkeypatch.setattr("shutil.disk_usage", lambda folder: namedtuple("usage", "free")(len(CONTENT)))
    fetching.fetch("data.bin", SUM, [f"{mirror.url}/data.bin"], to)


def test_only_what_is_missing_needs_space(mirror: MirrorServer, to: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "WAITS", (0,))
    monkeypatch.setattr("shutil.disk_usage", lambda folder: namedtuple("usage", "free")(len(CONTENT) - 100_000))
    mirror.faults["data.bin"] = Fault(cut_after=100_000, times=1, statuses=[200, 404])
    to.mkdir()
    (to / "data.bin.part").write_bytes(CONTENT[:100_000])
    (to / "data.bin.part.from").write_text(f"{mirror.url}/data.bin\n")
    mirror.faults.clear()
    fetching.fetch("data.bin", SUM, [f"{mirror.url}/data.bin"], to)
    assert (to / "data.bin").read_bytes() == CONTENT


def test_disk_full_on_the_way(mirror: MirrorServer, to: Path) -> None:
    """A limit for the size of files fails a write in the same way."""
    process = subprocess.run(
        [sys.executable, LIB / "fetch.py", "data.bin", SUM, f"{mirror.url}/data.bin", "--to", to],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)),
        stderr=subprocess.PIPE,
        text=True,
        timeout=30,
    )
    said = process.stderr.rstrip().rpartition("\n")[2]
    assert (process.returncode, said) == (
        1, f"fetch: error: cannot write {to}/data.bin: File too large; what has come is kept",
    )  # fmt: skip
    assert "Traceback" not in process.stderr
    assert (to / "data.bin.part").read_bytes() == CONTENT[:100_000]
    assert fetched(mirror, to) == ""
    assert mirror.requests[-1] == ("data.bin", "bytes=100000-")
    assert (to / "data.bin").read_bytes() == CONTENT


def test_what_another_has_left_under_the_name_of_a_part_stays(mirror: MirrorServer, to: Path) -> None:
    """Browsers call what they are fetching so, too."""
    to.mkdir()
    (to / "data.bin.part").write_bytes(b"mine")
    assert "data.bin.part is in the way" in fetched(mirror, to)
    assert (to / "data.bin.part").read_bytes() == b"mine"


def test_a_folder_that_cannot_be_written(mirror: MirrorServer, to: Path) -> None:
    to.mkdir()
    (to / "data.bin.part").mkdir()
    (to / "data.bin.part.from").write_text(f"{mirror.url}/data.bin\n")
    assert "Is a directory" in fetched(mirror, to)


def test_checked_once(mirror: MirrorServer, to: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    monkeypatch.setattr(fetching, "_digest", lambda path, kind: read.append(path.name) or SUM[7:])

    def again(checksum: str = SUM) -> int:
        fetching.fetch("data.bin", checksum, [f"{mirror.url}/data.bin"], to)
        return len(read)

    assert [again(), again()] == [1, 1]
    os.utime(to / "data.bin", (1, 1))
    assert [again(), again()] == [2, 2]
    assert again(SUM.upper().replace("SHA", "sha")) == 3


def test_changed_after_it_was_checked(mirror: MirrorServer, to: Path) -> None:
    assert fetched(mirror, to) == ""
    (to / "data.bin").write_bytes(CONTENT[::-1])
    assert "is not what it should be" in fetched(mirror, to)
    assert fetched(mirror, to) == ""
