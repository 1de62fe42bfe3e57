"""Damaged and hostile files and requests, made by hypothesis: refused, or without effect; nothing in them is run."""

from __future__ import annotations

import contextlib
import http.client
import io
import logging
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from probe_checkpoints import KINDS, checkpoint_of, data_in
from soak import DIFFERENT, EQUAL, EXECUTED, HARMLESS, HUNG, LOST, REFUSED, UNEXPECTED, Finding

from fairseq_compat import UserError, checkpoints
from fairseq_depthwise import cli

#: What a file of ours may never lead to; PyTorch starts none of these while it loads or computes.
_STARTS = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "pty.spawn", "socket.connect")
_started: list[str] = []


#: Up to four places of a file or request where bytes are replaced, inserted or lost, or where it ends.
CHANGES = st.lists(
    st.tuples(st.integers(0, 10**7), st.sampled_from(["replace", "insert", "lose", "end"]), st.binary(min_size=1)),
    min_size=1, max_size=4,
)  # fmt: skip


def damaged(content: bytes, changes: list[tuple[int, str, bytes]]) -> bytes:
    """Return bytes with changes."""
    for place, kind, some in changes:
        at = place % (len(content) + 1)
        rest = {"replace": some + content[at + len(some) :], "insert": some + content[at:], "end": b""}
        content = content[:at] + rest.get(kind, content[at + len(some) :])
    return content


def tried(attack: Callable[[Any], Finding], examples: Any, chance: random.Random) -> Iterator[Finding]:
    """Yield what came of an attack with examples that hypothesis draws, without end."""
    findings: list[Finding] = []

    @settings(max_examples=10, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(examples)
    def attacked(example: Any) -> None:
        findings.append(attack(example))

    while True:
        seed(chance.randrange(2**32))(attacked)()
        yield from findings
        findings.clear()


def here(words: list[Any], name: str, detail: str) -> Finding:
    """Run a command in this process, and judge how it ended."""
    _started.clear()
    error = io.StringIO()
    signal.alarm(60)
    try:
        with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())), contextlib.redirect_stderr(error):
            status = cli.main([str(word) for word in words])
    finally:
        signal.alarm(0)
    if _started:
        return name, EXECUTED, f"{detail}: {_started}"
    outcome = UNEXPECTED if "the traceback" in error.getvalue() else REFUSED
    return name, (HARMLESS if status == 0 else HUNG if status == 130 else outcome), detail


def files(folder: Path, chance: random.Random) -> Iterator[Finding]:
    """Damage checkpoints, exported folders, dictionaries, indexed and plain text, and give them to commands."""
    data, models = data_in(folder / "data"), {kind: checkpoint_of(folder, kind, f"{kind}.pt") for kind in KINDS}
    exported, copy = folder / "whole", folder / "exported"
    assert cli.main(["export", models["sdt_transformer"], str(exported), "--data", data]) == 0
    shutil.copytree(exported, copy)
    (folder / "text").write_text("w1 w2 w3\nw4 w5\n", encoding="utf-8")
    search = ["--tokenized", "--beam", "2", "--max-len-b", "8", "--cpu"]
    translate = ["translate", models["mute_transformer"], folder / "text", "--data", data, *search]
    similarity = ["similarity", models["mute_transformer"], "--data", data, "--subset", "valid"]
    cases: list[tuple[Path, list[Any]]] = [
        *((Path(path), ["inspect", path]) for path in models.values()),
        *((copy / path.name, ["translate", copy, folder / "text", *search[:-1]]) for path in exported.iterdir()),
        (Path(data, "dict.src.txt"), translate),
        (Path(data, "valid.src-tgt.src.idx"), similarity),
        (folder / "text", ["score", folder / "text", folder / "text"]),
    ]
    whole = {path: path.read_bytes() for path, _ in cases}
    sys.addaudithook(lambda event, _: _started.append(event) if event in _STARTS else None)
    signal.signal(signal.SIGALRM, signal.default_int_handler)  # as Ctrl-C
    logging.disable(logging.CRITICAL)

    def attack(example: tuple[tuple[Path, list[Any]], list[tuple[int, str, bytes]]]) -> Finding:
        (path, words), changes = example
        path.write_bytes(damaged(whole[path], changes))
        try:
            finding = here(words, f"{words[0]}: {path.suffix or 'text'}", f"{path.name}: {changes}")
            return _other_numbers(path, whole[path]) if words[0] == "inspect" and finding[1] == HARMLESS else finding
        finally:
            path.write_bytes(whole[path])

    yield from tried(attack, st.tuples(st.sampled_from(cases), CHANGES), chance)


def _other_numbers(path: Path, content: bytes) -> Finding:
    """See whether a damaged checkpoint that is not refused has the values of the whole one."""
    try:
        found, expected = (checkpoints.load_checkpoint(one)["model"] for one in (path, io.BytesIO(content)))
    except UserError:
        return "values of a checkpoint", REFUSED, path.name
    same = found.keys() == expected.keys() and all(torch.equal(found[key], expected[key]) for key in found)
    return "values of a checkpoint", HARMLESS if same else DIFFERENT, path.name


def requests(folder: Path, chance: random.Random) -> Iterator[Finding]:
    """Send damaged requests to a server; the next good one is answered, and SIGTERM ends it."""
    good = b'{"lines": ["w1 w2", "\xc3\xa9"], "nbest": 2, "stream": false}'
    head = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
    model = checkpoint_of(folder, "depthwise_lstm_transformer")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    command = [sys.executable, "-m", "fairseq_depthwise", "serve", model, "--data", data_in(folder / "data"), "--cpu"]
    command += ["--tokenized", "--port", str(port), "--beam", "2", "--max-len-b", "8"]

    def status(method: str = "GET", path: str = "/health", body: bytes | None = None) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()

    def attack(example: tuple[bool, list[tuple[int, str, bytes]]]) -> Finding:
        is_body, changes = example
        answer = 400
        if is_body:
            answer = status("POST", "/translate", damaged(good, changes))
        else:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
                connection.sendall(damaged(head + b"Content-Length: %d\r\n\r\n" % len(good) + good, changes))
        outcome = HARMLESS if answer == 200 else REFUSED if 400 <= answer < 500 else LOST
        alive = status("POST", "/translate", good) == 200
        return ("body" if is_body else "raw"), outcome if alive else LOST, f"{answer}: {changes}"

    while True:
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while status() != 200:
                assert server.poll() is None
                time.sleep(0.2)
            yield from islice(tried(attack, st.tuples(st.booleans(), CHANGES), chance), 500)
            server.terminate()
            ended = server.wait(60) in (0, 128 + signal.SIGTERM, -signal.SIGTERM)
            yield "SIGTERM", EQUAL if ended else LOST, f"status {server.returncode}"
        finally:
            server.kill()
            server.wait()
