"""Archives over connections that break, from mirrors and by hand: whole and the published ones, or not there."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import random
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mirror_server import Fault, MirrorServer
from recipe_runs import RECIPES

CONTENT = random.Random(1).randbytes(300_000)
SUM = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
#: As in prepare.sh, but without waits between two tries.
FETCH = 'RECIPE=multi30k; . "$0/recipe.sh"; . "$0/fetch.sh"; PYTHON=$REAL; sleep() { :; }; fetch "$@"'


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[MirrorServer]:
    (tmp_path / "public").mkdir()
    (tmp_path / "public" / "data.bin").write_bytes(CONTENT)
    with MirrorServer(tmp_path / "public") as server:
        yield server


@pytest.fixture
def to(tmp_path: Path) -> Path:
    return tmp_path / "downloads"


def start(to: Path, *arguments: str, before: str = "", **environment: str) -> subprocess.Popen[str]:
    """Start ``fetch`` in a process group of its own; ``before`` are commands of the shell."""
    return subprocess.Popen(
        ["bash", "-c", before + FETCH, str(RECIPES / "lib"), *arguments],
        env={
            **os.environ, "PYTHON": "/bin/true", "REAL": sys.executable, "DOWNLOADS": str(to), "MIRROR": "",
            "STALLED": "1", "IGNORE_CHECKSUMS": "", **environment,
        },
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def ended(process: subprocess.Popen[str]) -> str:
    """Return the error of a command, or nothing if it ended well."""
    message = process.communicate(timeout=60)[1].rstrip().rpartition("\n")[2]
    assert process.returncode in (0, 1)
    assert not process.returncode or message.startswith("multi30k: error: ")
    return message if process.returncode else ""


def fetched(mirror: MirrorServer, to: Path, checksum: str = SUM, before: str = "", **environment: str) -> str:
    return ended(start(to, "data.bin", checksum, f"{mirror.url}/data.bin", before=before, **environment))


def left(to: Path) -> list[str]:
    return sorted(path.name for path in to.iterdir())


def wait_for(there: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not there():
        assert time.monotonic() < end
        time.sleep(0.01)


def part_of(to: Path) -> bytes:
    path = to / ".data.bin.fairseq-unfinished"
    return path.read_bytes() if path.exists() else b""


def test_one_file_once(mirror: MirrorServer, to: Path) -> None:
    for _ in range(2):
        assert fetched(mirror, to) == ""
        assert (to / "data.bin").read_bytes() == CONTENT
    assert mirror.requests == [("data.bin", None)]
    assert left(to) == ["data.bin", "data.bin.checked"]


@pytest.mark.parametrize(
    ("fault", "requests"),
    [
        (Fault(cut_after=100_000), [None, "bytes=100000-", "bytes=200000-"]),
        (Fault(cut_after=100_000, times=1, ranges=False), [None, "bytes=100000-", None]),
        (Fault(hang_after=100_000, times=1), [None, "bytes=100000-"]),
        (Fault(statuses=[503, 429]), [None, None, None]),
    ],
)
def test_connections_that_break(fault: Fault, requests: list[str | None], mirror: MirrorServer, to: Path) -> None:
    mirror.faults["data.bin"] = fault
    assert fetched(mirror, to) == ""
    assert [asked for _, asked in mirror.requests] == requests
    assert (to / "data.bin").read_bytes() == CONTENT


def test_killed(mirror: MirrorServer, to: Path) -> None:
    """The next run goes on where it stopped, or finds all of it there."""
    mirror.faults["data.bin"] = Fault(hang_after=150_000, times=1)
    process = start(to, "data.bin", SUM, f"{mirror.url}/data.bin", STALLED="60")
    wait_for(lambda: len(part_of(to)) > 100_000)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    have = len(part_of(to))
    assert fetched(mirror, to) == ""
    assert mirror.requests[-1] == ("data.bin", f"bytes={have}-")
    assert (to / "data.bin").read_bytes() == CONTENT
    (to / "data.bin").rename(to / ".data.bin.fairseq-unfinished")
    assert fetched(mirror, to) == ""
    assert (to / "data.bin").read_bytes() == CONTENT


def test_two_at_once(mirror: MirrorServer, to: Path) -> None:
    """The second waits for what the first fetches, or goes on where that one died."""
    mirror.faults["data.bin"] = Fault(hang_after=150_000, times=1)
    call = ("data.bin", SUM, f"{mirror.url}/data.bin")
    first = start(to, *call, STALLED="60")
    wait_for(lambda: len(part_of(to)) > 0)
    second = start(to, *call)
    assert second.stderr is not None
    assert "waiting for another process" in second.stderr.readline()
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    assert ended(second) == ""
    assert len(mirror.requests) == 2
    assert (to / "data.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("kind", ["sha256", "md5"])
def test_wrong_checksum(kind: str, mirror: MirrorServer, to: Path) -> None:
    published = hashlib.new(kind, CONTENT).hexdigest()
    mirror.faults["data.bin"] = Fault(wrong_bytes=True)
    message = fetched(mirror, to, f"{kind}:{published}")
    assert published in message
    assert "IGNORE_CHECKSUMS=1" in message
    assert left(to) == []
    assert fetched(mirror, to, f"{kind}:{published}", IGNORE_CHECKSUMS="1") == ""
    (to / "data.bin").unlink()
    mirror.faults.clear()
    assert fetched(mirror, to, f"{kind}:{published}") == ""
    assert (to / "data.bin").read_bytes() == CONTENT


def test_a_file_that_somebody_put_there_is_theirs_to_remove(mirror: MirrorServer, to: Path) -> None:
    assert fetched(mirror, to) == ""
    (to / "data.bin").write_bytes(CONTENT[::-1])
    assert str(to) in fetched(mirror, to)
    assert (to / "data.bin").read_bytes() == CONTENT[::-1]
    assert fetched(mirror, to, "sha256:" + hashlib.sha256(CONTENT[::-1]).hexdigest()) == ""


def tar_of(mode: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        for name in "ab":
            member = tarfile.TarInfo(name)
            member.size = 51_200
            archive.addfile(member, io.BytesIO(CONTENT[: member.size]))
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "make", "ends"),
    [
        # A compressed one in its trailer and in its middle.
        ("a.tgz", lambda: tar_of("w:gz"), (-3, 50_000)),
        ("a.gz", lambda: gzip.compress(CONTENT), (0,)),
        # A tar between its members, after the last, in a header and in a member.
        ("a.tar", lambda: tar_of("w"), (512 + 51_200, 2 * (512 + 51_200), 512 + 51_200 + 100, 50_000)),
    ],
)
def test_no_published_checksum(name: str, make: Callable[[], bytes], ends: tuple[int, ...], tmp_path: Path) -> None:
    public, to, content = tmp_path / "public", tmp_path / "downloads", make()
    public.mkdir()
    damaged = [content[:end] for end in ends]
    if name != "a.tar":
        damaged.append(content[:40_000] + b"wrong" + content[40_005:])
    for some in damaged:
        (public / name).write_bytes(some)
        assert name in ended(start(to, name, "none", MIRROR=str(public)))
        assert left(to) == []
    assert name in ended(start(to, name, SUM, MIRROR=str(public), IGNORE_CHECKSUMS="1"))
    (public / name).write_bytes(content)
    assert ended(start(to, name, "none", MIRROR=str(public))) == ""
    assert (to / name).read_bytes() == content


def test_mirror(mirror: MirrorServer, to: Path) -> None:
    for place in (str(mirror.folder), f"{mirror.url}/"):
        assert ended(start(to, "data.bin", SUM, "http://127.0.0.1:9/data.bin", MIRROR=place)) == ""
        (to / "data.bin").unlink()
    assert mirror.requests == [("data.bin", None)]
    assert "other.bin" in ended(start(to, "other.bin", SUM, "http://127.0.0.1:9/other.bin", MIRROR=str(mirror.folder)))


def test_one_mirror_serves_all_recipes() -> None:
    """No two archives have one name: a folder of all of them can be ``DOWNLOADS`` and ``MIRROR`` of every recipe."""
    files = [RECIPES / "lib" / "archives.txt", *RECIPES.glob("*/prepare.sh")]
    text = "".join(path.read_text().replace("\\\n", "") for path in files)
    found = re.findall(r"([\w.-]+) +((?:sha256|md5):[0-9a-f]{32,})", text)
    assert {"wmt15-test.tgz", "wmt18-test.tgz", "deu-eng.zip", "training-giga-fren.tar"} <= dict(found).keys()
    assert len(dict(found)) == len(set(found)) > 30


def test_by_hand(mirror: MirrorServer, to: Path) -> None:
    call = ("data.bin", SUM, "by-hand: register at home.org, and put it there")
    assert "register at home.org" in ended(start(to, *call))
    (to / "data.bin").write_bytes(CONTENT)
    assert ended(start(to, *call)) == ""


def test_disk_full_on_the_way(mirror: MirrorServer, to: Path) -> None:
    """A limit for the size of files fails a write in the same way."""
    message = fetched(mirror, to, before="trap '' XFSZ; ulimit -f 100; ")
    assert str(to) in message
    have = len(part_of(to))
    assert 0 < have < len(CONTENT)
    assert fetched(mirror, to) == ""
    assert mirror.requests[-1] == ("data.bin", f"bytes={have}-")
    assert (to / "data.bin").read_bytes() == CONTENT
