"""Archives over connections that break, from mirrors and by hand: whole and the published ones, or not there."""

from __future__ import annotations

import gzip
import hashlib
import os
import random
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from recipe_runs import RECIPES

CONTENT = random.Random(1).randbytes(300_000)
SUM = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
#: As in prepare.sh, but without waits between two tries.
FETCH = 'RECIPE=multi30k; . "$0/recipe.sh"; . "$0/fetch.sh"; PYTHON=$REAL; sleep() { :; }; fetch "$@"'


class Home(BaseHTTPRequestHandler):
    """A corpus's home, whose connections end after 100,000 bytes though more were announced."""

    requests: list[str | None]

    def do_GET(self) -> None:  # the name that http.server calls
        asked = self.headers["Range"]
        self.requests.append(asked)
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")
        self.send_header("Content-Length", str(len(CONTENT) - start))
        self.end_headers()
        self.wfile.write(CONTENT[start : start + 100_000])

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on stderr."""


@pytest.fixture
def home() -> Iterator[str]:
    Home.requests = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Home) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/data.bin"
        server.shutdown()
        thread.join()


@pytest.fixture
def to(tmp_path: Path) -> Path:
    return tmp_path / "downloads"


def fetched(to: Path, *arguments: str, before: str = "", **environment: str) -> str:
    """Run ``fetch``, and return its error, or nothing if it ended well; ``before`` are commands of the shell."""
    result = subprocess.run(
        ["bash", "-c", before + FETCH, str(RECIPES / "lib"), *arguments],
        env={
            **os.environ, "PYTHON": "/bin/true", "REAL": sys.executable, "DOWNLOADS": str(to), "MIRROR": "",
            "IGNORE_CHECKSUMS": "", **environment,
        },
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    message = result.stderr.rstrip().rpartition("\n")[2]
    assert result.returncode in (0, 1)
    assert not result.returncode or message.startswith("multi30k: error: ")
    return message if result.returncode else ""


def left(to: Path) -> list[str]:
    return sorted(path.name for path in to.iterdir())


def test_a_connection_that_breaks_goes_on_where_it_broke(home: str, to: Path) -> None:
    for _ in range(2):  # the second time it is there
        assert fetched(to, "data.bin", SUM, home) == ""
        assert (to / "data.bin").read_bytes() == CONTENT
    assert Home.requests == [None, "bytes=100000-", "bytes=200000-"]
    assert left(to) == ["data.bin", "data.bin.checked"]


def test_disk_full_on_the_way(home: str, to: Path) -> None:
    """A limit for the size of files fails a write in the same way; the next run goes on, as after a kill."""
    assert str(to) in fetched(to, "data.bin", SUM, home, before="trap '' XFSZ; ulimit -f 150; ")
    have = (to / ".data.bin.fairseq-unfinished").stat().st_size
    assert 0 < have < len(CONTENT)
    Home.requests.clear()
    assert fetched(to, "data.bin", SUM, home) == ""
    assert Home.requests[0] == f"bytes={have}-"
    assert (to / "data.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("kind", ["sha256", "md5"])
def test_wrong_checksum(kind: str, tmp_path: Path, to: Path) -> None:
    (tmp_path / "data.bin").write_bytes(CONTENT[::-1])
    published = hashlib.new(kind, CONTENT).hexdigest()
    call = ("data.bin", f"{kind}:{published}")
    assert published in fetched(to, *call, MIRROR=str(tmp_path))
    assert left(to) == []
    assert fetched(to, *call, MIRROR=str(tmp_path), IGNORE_CHECKSUMS="1") == ""


def test_a_file_that_somebody_put_there_is_theirs_to_remove(to: Path) -> None:
    call = ("data.bin", SUM, "by-hand: register at home.org, and put it there")
    assert "register at home.org" in fetched(to, *call)
    (to / "data.bin").write_bytes(CONTENT[::-1])
    assert str(to) in fetched(to, *call)
    assert (to / "data.bin").read_bytes() == CONTENT[::-1]
    (to / "data.bin").write_bytes(CONTENT)
    assert fetched(to, *call) == ""


def test_no_published_checksum(tmp_path: Path, to: Path) -> None:
    """Then it is read to its end."""
    content = gzip.compress(CONTENT)
    for some in (content[:-3], content[:40_000] + b"wrong" + content[40_005:]):
        (tmp_path / "a.gz").write_bytes(some)
        assert "a.gz" in fetched(to, "a.gz", "none", MIRROR=str(tmp_path))
        assert left(to) == []
    (tmp_path / "a.gz").write_bytes(content)
    assert fetched(to, "a.gz", "none", MIRROR=str(tmp_path)) == ""
    assert (to / "a.gz").read_bytes() == content
    assert "b.gz" in fetched(to, "b.gz", "none", MIRROR=str(tmp_path))


def test_one_mirror_serves_all_recipes() -> None:
    """No two archives have one name: a folder of all of them can be ``DOWNLOADS`` and ``MIRROR`` of every recipe."""
    files = [RECIPES / "lib" / "archives.txt", *RECIPES.glob("*/prepare.sh")]
    text = "".join(path.read_text().replace("\\\n", "") for path in files)
    found = re.findall(r"([\w.-]+) +((?:sha256|md5):[0-9a-f]{32,})", text)
    assert {"wmt15-test.tgz", "wmt18-test.tgz", "deu-eng.zip", "training-giga-fren.tar"} <= dict(found).keys()
    assert len(dict(found)) == len(set(found)) > 30
