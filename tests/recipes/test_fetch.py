"""Fetching one file over connections that break, from servers of every kind, by processes that are killed."""

from __future__ import annotations

import hashlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import fetch as fetching
import pytest
from fetch_runs import CONTENT, SUM, command, ended, fetched, left, public_folder
from mirror_server import Fault, MirrorServer

from fairseq_compat import UserError


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[MirrorServer]:
    with MirrorServer(public_folder(tmp_path)) as server:
        yield server


@pytest.fixture
def to(tmp_path: Path) -> Path:
    return tmp_path / "downloads"


def test_one_file_once(mirror: MirrorServer, to: Path) -> None:
    run = command("data.bin", SUM, f"{mirror.url}/data.bin", "--to", to, quick=False)
    assert ended(run)[0] == 0
    assert (to / "data.bin").read_bytes() == CONTENT
    assert left(to) == ["data.bin", "data.bin.checked"]
    assert fetched(mirror, to) == ""
    assert mirror.requests == [("data.bin", None)]


def test_goes_on_after_broken_connections(mirror: MirrorServer, to: Path) -> None:
    mirror.faults["data.bin"] = Fault(cut_after=100_000)
    assert fetched(mirror, to) == ""
    assert (to / "data.bin").read_bytes() == CONTENT
    assert mirror.requests == [("data.bin", start) for start in (None, "bytes=100000-", "bytes=200000-")]
    assert mirror.sent["data.bin"] == len(CONTENT)


def test_goes_on_in_the_next_run(mirror: MirrorServer, to: Path) -> None:
    mirror.faults["data.bin"] = Fault(cut_after=100_000, times=1, statuses=[200, 404])
    said = fetched(mirror, to)
    assert f"data.bin cannot be fetched ({mirror.url}/data.bin: Not Found); what has come is kept" in said
    assert (to / "data.bin.part").read_bytes() == CONTENT[:100_000]
    assert fetched(mirror, to) == ""
    assert (to / "data.bin").read_bytes() == CONTENT
    assert mirror.sent["data.bin"] == len(CONTENT)


def test_a_connection_that_hangs(mirror: MirrorServer, to: Path) -> None:
    mirror.faults["data.bin"] = Fault(hang_after=100_001, times=1)
    assert fetched(mirror, to) == ""
    assert (to / "data.bin").read_bytes() == CONTENT
    assert mirror.sent["data.bin"] == len(CONTENT), "what came before it hung was fetched twice"


def test_killed_in_the_middle(mirror: MirrorServer, to: Path) -> None:
    mirror.faults["data.bin"] = Fault(hang_after=150_000, times=1)
    process = command("data.bin", SUM, f"{mirror.url}/data.bin", "--to", to, quick=False)
    part, deadline = to / "data.bin.part", time.monotonic() + 20
    while not (part.exists() and part.stat().st_size > 100_000):
        assert time.monotonic() < deadline, "what comes is not written before the connection ends"
        time.sleep(0.01)
    process.kill()
    process.communicate()
    have = part.stat().st_size
    assert part.read_bytes() == CONTENT[:have]
    assert fetched(mirror, to) == ""
    assert mirror.requests == [("data.bin", None), ("data.bin", f"bytes={have}-")]
    assert (to / "data.bin").read_bytes() == CONTENT


def test_killed_before_it_got_its_name(mirror: MirrorServer, to: Path) -> None:
    mirror.faults["data.bin"] = Fault(cut_after=100_000, times=1, statuses=[200, 404])
    fetched(mirror, to)
    (to / "data.bin.part").write_bytes(CONTENT)
    assert fetched(mirror, to) == ""
    assert mirror.sent["data.bin"] == 100_000
    assert (to / "data.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("ranges", [True, False])
def test_replaced_between_two_connections(ranges: bool, mirror: MirrorServer, to: Path) -> None:
    """No mixture of both, whether the server's answer is all of the new file or a refusal."""
    new = CONTENT[::-1]
    mirror.faults["data.bin"] = Fault(cut_after=100_000, times=1, replaced_by=new, ranges=ranges)
    assert fetched(mirror, to, f"sha256:{hashlib.sha256(new).hexdigest()}") == ""
    assert (to / "data.bin").read_bytes() == new


def test_replaced_by_a_shorter_one(mirror: MirrorServer, to: Path) -> None:
    """Without anything that tells versions apart, the server has no such range."""
    mirror.faults["data.bin"] = Fault(cut_after=100_000, times=1, statuses=[200, 404])
    fetched(mirror, to)
    (to / "data.bin.part.from").write_text(f"{mirror.url}/data.bin\n")
    (mirror.folder / "data.bin").write_bytes(CONTENT[:5000])
    assert fetched(mirror, to, f"sha256:{hashlib.sha256(CONTENT[:5000]).hexdigest()}") == ""
    assert (to / "data.bin").read_bytes() == CONTENT[:5000]


def test_a_server_without_ranges(mirror: MirrorServer, to: Path) -> None:
    mirror.faults["data.bin"] = Fault(cut_after=100_000, times=1, ranges=False)
    assert fetched(mirror, to) == ""
    assert (to / "data.bin").read_bytes() == CONTENT
    assert mirror.sent["data.bin"] == 100_000 + len(CONTENT)


def test_a_server_without_lengths(mirror: MirrorServer, to: Path) -> None:
    mirror.faults["data.bin"] = Fault(length=False)
    assert fetched(mirror, to) == ""
    mirror.faults["data.bin"] = Fault(length=False, cut_after=1000)
    (to / "data.bin").unlink()
    assert "the sha256 " in fetched(mirror, to)
    assert left(to) == []


def test_a_server_that_is_overloaded(mirror: MirrorServer, to: Path) -> None:
    mirror.faults["data.bin"] = Fault(statuses=[503, 503])
    assert fetched(mirror, to) == ""
    assert len(mirror.requests) == 3
    assert (to / "data.bin").read_bytes() == CONTENT


def test_tries_end(mirror: MirrorServer, to: Path) -> None:
    mirror.faults["data.bin"] = Fault(cut_after=0)
    assert "cannot be fetched" in fetched(mirror, to)
    assert len(mirror.requests) == 4


def test_addresses_in_turn(mirror: MirrorServer, to: Path) -> None:
    gone, there = f"{mirror.url}/gone.bin", f"{mirror.url}/data.bin"
    assert ended(command("data.bin", SUM, gone, there, "--to", to))[0] == 0
    assert [name for name, _ in mirror.requests] == ["gone.bin", "data.bin"]
    (to / "data.bin").unlink()
    mirror.faults["data.bin"] = Fault(cut_after=100_000, statuses=[200, 404])
    assert ended(command("data.bin", SUM, gone, there, "--to", to))[0] == 1
    (mirror.folder / "gone.bin").write_bytes(CONTENT)
    assert ended(command("data.bin", SUM, gone, there, "--to", to))[0] == 0
    assert mirror.requests[-1] == ("gone.bin", None), "one address' beginning must not get another's end"


def test_network_failures_are_not_the_disks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A route that is gone comes as a plain OSError, with a number as a full disk has one."""
    monkeypatch.setattr(fetching, "WAITS", (0,))

    def lost(*arguments: object) -> bool:
        raise OSError(113, "No route to host")

    monkeypatch.setattr(fetching, "_receive", lost)
    with pytest.raises(UserError, match=r"data.bin cannot be fetched \(http://x: .*No route to host"):
        fetching.fetch("data.bin", SUM, ["http://x"], tmp_path)


def test_two_at_once(mirror: MirrorServer, to: Path) -> None:
    """Two recipes may share a folder: the second waits for what the first fetches, or goes on where that one died."""
    mirror.faults["data.bin"] = Fault(hang_after=150_000, times=1)
    call = ("data.bin", SUM, f"{mirror.url}/data.bin", "--to", to)
    first = command(*call, quick=False)
    deadline = time.monotonic() + 20
    while not (to / "data.bin.part").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    others = [command(*call), command(*call)]
    for other in others:
        assert other.stderr is not None
        assert other.stderr.readline() == f"waiting for another process that fetches into {to}\n"
    first.kill()
    first.communicate()
    assert [ended(other)[0] for other in others] == [0, 0]
    assert len(mirror.requests) == 2
    assert (to / "data.bin").read_bytes() == CONTENT


def test_interrupted(mirror: MirrorServer, to: Path) -> None:
    mirror.faults["data.bin"] = Fault(hang_after=1000)
    process = command("data.bin", SUM, f"{mirror.url}/data.bin", "--to", to, quick=False)
    deadline = time.monotonic() + 20
    while not mirror.sent["data.bin"]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert ended(process) == (130, "interrupted; run the same command again to go on")
