"""A server that is asked for nonsense, ended while it works, and killed."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

from attacks import PATIENCE, Finding, Outcome, Place
from probe_checkpoints import checkpoint_of, data_in
from served import Client, damaged_body

#: A request that every change starts from.
_GOOD = b'{"lines": ["w1 w2", "\xc3\xa9"], "nbest": 2, "stream": false}'


def requests(place: Place) -> Iterator[Finding]:
    """Send 200 changed requests to each server, then end it while it translates."""
    data = data_in(place.folder / "data")
    model = checkpoint_of(place.folder, "depthwise_lstm_transformer")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    command = [
        sys.executable, "-m", "fairseq_depthwise", "serve", model, "--data", data, "--cpu", "--tokenized", "--port",
        str(port), "--beam", "2", "--max-len-b", "8",
    ]  # fmt: skip
    while True:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        client = Client(port)
        try:
            if not _ready(client, process):
                process.kill()
                yield Finding("start", Outcome.HUNG, process.communicate()[1][-600:])
                continue
            for _ in range(200):
                yield _asked(client, place.chance)
            end = place.chance.choice([signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
            yield _ended(client, process, end, place.chance)
        finally:
            process.kill()  # when the time is over
            process.wait()


def _ready(client: Client, process: subprocess.Popen[str]) -> bool:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if client.send(method="GET", path="/health")[0] == 200:
                return True
        time.sleep(0.2)
    return False


def _asked(client: Client, chance: random.Random) -> Finding:
    """Send one request, changed or raw, and see that the next good one is answered."""
    kind = chance.choice(["body", "body", "body", "header", "raw", "left"])
    body = damaged_body(_GOOD, chance)
    status, outcome = 0, Outcome.REFUSED
    try:
        if kind == "body":
            status = client.send(body)[0]
            outcome = _of_status(status)
        elif kind == "header":
            name = chance.choice(["Content_Type", "Host", "Accept", "Transfer_Encoding", "Connection"])
            value = "".join(chance.choice("abc/;=,: 0189\t") for _ in range(chance.randrange(40))).strip()
            status = client.send(_GOOD, **{name: value})[0]
            outcome = _of_status(status)
        else:
            with socket.create_connection(("127.0.0.1", client.port), timeout=PATIENCE) as connection:
                start = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                sent = start + b"Content-Length: %d\r\n\r\n" % len(_GOOD) + _GOOD
                if kind == "raw":
                    at = chance.randrange(len(sent))
                    sent = sent[:at] + chance.randbytes(chance.randrange(1, 30)) + sent[at:]
                connection.sendall(sent[: chance.randrange(1, len(sent))])
    except (OSError, http.client.HTTPException):
        pass  # it may close a connection that makes no sense
    try:
        if client.translate("w1 w2")[0] != 200:
            return Finding(kind, Outcome.LOST, f"the next request was not answered; status {status}")
    except (OSError, http.client.HTTPException) as error:
        return Finding(kind, Outcome.LOST, f"the next request was not answered: {error!r}")
    return Finding(kind, outcome, f"status {status}: {body!r}")


def _of_status(status: int) -> Outcome:
    if status == 200:
        return Outcome.HARMLESS
    return Outcome.REFUSED if 400 <= status < 500 else Outcome.SURPRISED


def _ended(client: Client, process: subprocess.Popen[str], number: signal.Signals, chance: random.Random) -> Finding:
    """End it while lines are translated; what has been taken is finished unless it is killed."""
    found: list[int] = []
    reached = threading.Event()

    def ask() -> None:
        connection = client.connect()
        try:
            lines = [" ".join(f"w{chance.randrange(8)}" for _ in range(30)) for _ in range(60)]
            connection.request("POST", "/translate", json.dumps({"lines": lines}), {"Content-Type": "application/json"})
            reached.set()
            found.append(connection.getresponse().status)
        except (OSError, http.client.HTTPException):
            found.append(0)
        finally:
            connection.close()

    thread = threading.Thread(target=ask)
    thread.start()
    reached.wait(PATIENCE)
    time.sleep(0.3)  # until it has been read
    process.send_signal(number)
    try:
        _, error = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        return Finding(f"ended by {number.name}", Outcome.HUNG)
    thread.join(PATIENCE)
    about = f"{number.name}: status {process.returncode}, answer {found}: {error[-400:]}"
    if number == signal.SIGKILL:
        return Finding("ended by SIGKILL", Outcome.HARMLESS, about)
    whole = found == [200] and "Traceback" not in error
    return Finding(f"ended by {number.name}", Outcome.EQUAL if whole else Outcome.LOST, about)
