"""Runs of ``recipes/lib/fetch.py``, and a file for a mirror that it fetches."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path

import fetch
from mirror_server import MirrorServer

LIB = Path(fetch.__file__).parent
CONTENT = random.Random(1).randbytes(300_000)
SUM = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
#: The command, with waits between tries that suit tests.
QUICK = "import fetch; fetch.TIMEOUT, fetch.WAITS = 1, (0, 0, 0); fetch.run_step(fetch.main)"


def public_folder(folder: Path) -> Path:
    """A folder for a mirror, with ``data.bin``."""
    public = folder / "public"
    public.mkdir()
    (public / "data.bin").write_bytes(CONTENT)
    return public


def command(*arguments: str | Path, quick: bool = True, **environment: str) -> subprocess.Popen[str]:
    """It, started; not ``quick``, with the waits that users have."""
    start = ["-c", QUICK] if quick else [str(LIB / "fetch.py")]
    return subprocess.Popen(
        [sys.executable, *start, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(LIB), "MIRROR": "", **environment},
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Its status, and the last line that it said, without the program's name."""
    output, errors = process.communicate(timeout=30)
    assert output == ""
    assert "Traceback" not in errors
    last = errors.rstrip().rpartition("\n")[2]
    return process.returncode, last.removeprefix("-c: ").removeprefix("fetch: ")


def fetched(mirror: MirrorServer, to: Path, checksum: str = SUM, name: str = "data.bin", **environment: str) -> str:
    """The command's error, or nothing where it ended well."""
    status, said = ended(command(name, checksum, f"{mirror.url}/{name}", "--to", to, **environment))
    assert status in (0, 1)
    return said if status else ""


def left(to: Path) -> list[str]:
    """The names of the files in the folder."""
    return sorted(path.name for path in to.iterdir())
