"""``translate --ray``: what a cluster makes of a text, with a node that is lost and a command that is killed."""

from __future__ import annotations

import gzip
import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from probe_checkpoints import checkpoint_of, data_in

from fairseq_depthwise import cli

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="the extra ray is not installed")

#: Lines one by one, so that a small model has something to do.
SEARCH = ["--beam", "4", "--max-len-b", "16", "--cpu", "--json", "--nbest", "2"]
SLOW = ["--batch-size", "1", "--threads", "1", "--buffer-lines", "20"]

#: Seconds after which a test fails rather than waits.
PATIENCE = 120.0

#: Loopback only, for what is started here.
ENVIRONMENT = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("run")
    data_in(folder / "gone")
    return checkpoint_of(folder, "depthwise_lstm_transformer")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Any]:
    """Two nodes of one core on this machine; ``remove`` kills the second, ``address`` is that of the first."""
    program = (
        "import sys\nfrom ray.cluster_utils import Cluster\n"
        "cluster = Cluster(initialize_head=True, head_node_args={'num_cpus': 1, 'include_dashboard': False})\n"
        "node = cluster.add_node(num_cpus=1)\nprint(cluster.address, flush=True)\n"
        "if sys.stdin.readline():\n    cluster.remove_node(node, allow_graceful=False)\n    sys.stdin.readline()\n"
        "cluster.shutdown()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], env={**os.environ, **ENVIRONMENT, "TMPDIR": "/tmp"}, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        stdin = process.stdin

        def remove() -> None:
            stdin.write("\n")
            stdin.flush()

        yield SimpleNamespace(address=process.stdout.readline().strip(), remove=remove)
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=30)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


#: Ray's sockets have names of 107 bytes at most, the tests' folder of temporary files included.
SHORT = {"TMPDIR": "/tmp"}


class Command:
    """``fairseq-depthwise translate`` in a process group of its own, and what it writes to stderr."""

    def __init__(self, *arguments: object) -> None:
        self.stderr: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fairseq_depthwise", "translate", *map(str, arguments)],
            env={**os.environ, **SHORT, **(ENVIRONMENT if "127.0.0.1" in "".join(map(str, arguments)) else {})},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.stderr.append(line)

    def until(self, condition: Callable[[], object]) -> None:
        started = time.monotonic()
        while not condition():
            assert self.process.poll() is None, "".join(self.stderr)
            assert time.monotonic() - started < PATIENCE, "".join(self.stderr)
            time.sleep(0.05)

    def ended(self) -> int:
        status = self.process.wait(PATIENCE)
        self._reader.join()
        return status


def plain(model: str, text: Path, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert cli.main(["translate", model, str(text), *SEARCH]) == 0
    return capsys.readouterr().out


def without_scores(lines: str) -> str:
    """Scores are the same but for rounding, which depends on the batch."""
    return re.sub(r'"score": [-0-9.e]+', "", lines)


@needs_ray
@pytest.mark.long
def test_killed_and_then_a_node_is_lost(
    model: str, cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second start has the blocks of the first; the whole is what is translated without Ray."""
    lines = [" ".join(f"w{(number * step) % 8}" for step in range(1, 7)) for number in range(360)]
    first, second = tmp_path / "first", tmp_path / "second.gz"
    first.write_text("".join(f"{line}\n" for line in lines[:190]), encoding="utf-8")
    second.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines[190:]).encode()))
    output, blocks = tmp_path / "out", tmp_path / "out.blocks"
    given = [model, first, second, *SEARCH, *SLOW, "--output-folder", output, "--ray", cluster.address]

    command = Command(*given)
    command.until(lambda: len([*blocks.glob("*.block")]) >= 3)
    os.killpg(command.process.pid, signal.SIGKILL)
    command.ended()
    done = {path: path.stat().st_mtime_ns for path in blocks.glob("*.block")}

    command = Command(*given)
    command.until(lambda: len([*blocks.glob("*.block")]) >= len(done) + 3)
    assert {path: path.stat().st_mtime_ns for path in done} == done
    cluster.remove()
    assert command.ended() == 0, "".join(command.stderr)
    assert f"{20 * len(done)} at earlier starts" in command.stderr[-1]
    assert not blocks.exists()
    assert sorted(path.name for path in output.iterdir()) == ["first", "made_by.json", "second.gz"]
    found = (output / "first").read_text(encoding="utf-8")
    assert without_scores(found) == without_scores(plain(model, first, capsys))
    found = gzip.decompress((output / "second.gz").read_bytes()).decode()
    assert without_scores(found) == without_scores(plain(model, second, capsys))


def descendants(process: int) -> dict[int, str]:
    """Processes that this one started, and those that they started, with their commands."""
    by_parent: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            by_parent.setdefault(int(entry.read_text().rpartition(")")[2].split()[1]), []).append(int(entry.parts[2]))
    found, pending = dict[int, str](), [process]
    while pending:
        for child in by_parent.get(pending.pop(), []):
            pending.append(child)
            with suppress(OSError):
                found[child] = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


def listening(processes: set[int]) -> set[str]:
    """The addresses, in hexadecimal, at which processes listen."""
    sockets = set()
    for process in processes:
        for entry in Path(f"/proc/{process}/fd").glob("*"):
            with suppress(OSError):
                sockets.add(os.readlink(entry).removeprefix("socket:[").removesuffix("]"))
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return {row[1].partition(":")[0] for row in rows if row[3] == "0A" and row[9] in sockets}


@needs_ray
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="processes are looked at in /proc")
@pytest.mark.long
def test_ray_of_this_machine_ends_with_the_command(model: str, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("w1 w2 w3\n" * 3000, encoding="utf-8")
    command = Command(model, text, *SEARCH, *SLOW, "--output", tmp_path / "out", "--ray", "--ray-actors", "1")
    command.until(lambda: [*tmp_path.glob("out.blocks/*.block")])
    started = descendants(command.process.pid)
    assert any("raylet" in words for words in started.values())
    assert listening({command.process.pid, *started}) <= {"0100007F", "0000000000000000FFFF00000100007F"}
    command.process.send_signal(signal.SIGTERM)
    assert command.ended() == 128 + signal.SIGTERM
    assert any("out.blocks; the same command goes on" in line for line in command.stderr)
    assert not (tmp_path / "out").exists()
    until = time.monotonic() + 10
    while any(Path(f"/proc/{process}/cmdline").exists() and Path(f"/proc/{process}/cmdline").read_bytes()
              for process in started):  # fmt: skip
        assert time.monotonic() < until
        time.sleep(0.1)


@needs_ray
@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("{text} --ray", "--output"),
        ("{text} {text} --ray --output-folder {folder}/b", "2 files are called text.src"),
        ("{text} --output {folder}/a --ray 127.0.0.1:{closed}", "127.0.0.1:{closed}"),
        ("{text} --output {folder}/a --ray", "fairseq-depthwise[ray]"),
    ],
)
def test_refused(
    words: str, named: str, model: str, tmp_path: Path, refusal: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a model is loaded, and nothing is left."""
    if named.endswith("[ray]"):
        monkeypatch.setitem(sys.modules, "ray", None)  # as where it is not installed
    text = tmp_path / "text.src"
    text.write_text("w1 w2\n", encoding="utf-8")
    before = sorted(tmp_path.iterdir())
    with socket.create_server(("127.0.0.1", 0)) as closed:
        places = {"folder": tmp_path, "text": text, "closed": closed.getsockname()[1]}
    assert named.format(**places) in refusal("translate", model, *words.format(**places).split(), "--cpu")
    assert sorted(tmp_path.iterdir()) == before
