"""A server in a thread of the tests, with a translator that does what a test says."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from fairseq_compat import UserError
from fairseq_depthwise.serving.http.app import Service
from fairseq_depthwise.serving.http.connections import server_of
from fairseq_depthwise.serving.server_options import ServerOptions
from fairseq_depthwise.translation.translation_options import TranslatorOptions

#: Seconds after which a test fails rather than waits.
PATIENCE = 30.0


class FakeTranslator:
    """Writes lines backwards, three times; records its searches, which wait for ``go``.

    Attributes:
        searches: lines of each search.
        go: set unless a test clears it.
        begun: released once by every search that begins.
        free: searches at the beginning that do not wait.
        pause: seconds of every search.
    """

    languages = ("src", "tgt")
    known_languages = ("src", "tgt", "xx")
    options = TranslatorOptions(nbest=3)
    free = 0
    pause = 0.0

    def __init__(self) -> None:
        self.searches: list[tuple[str, ...]] = []
        self.go = threading.Event()
        self.go.set()
        self.begun = threading.Semaphore(0)

    def translations(
        self, lines: Sequence[str], *, source_lang: str | None, target_lang: str | None, nbest: int | None
    ) -> list[Any]:
        if (source_lang, target_lang) not in (("src", "tgt"), ("src", "xx")):
            raise UserError(f"target_lang {target_lang} is none of the model's languages: tgt, xx")
        self.searches.append(tuple(lines))
        self.begun.release()
        assert len(self.searches) <= self.free or self.go.wait(PATIENCE)
        time.sleep(self.pause)
        if "poison" in lines:
            raise RuntimeError("a secret of the search")
        return [
            SimpleNamespace(
                hypotheses=[SimpleNamespace(text=line[::-1] + "!" * rank, score=-1.5 - rank) for rank in range(3)],
                cut_off=line == "long",
            )
            for line in lines
        ]


class Client:
    """Requests to a server, each on a connection of its own."""

    def __init__(self, port: int) -> None:
        self.port = port

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def send(
        self, body: bytes | None = None, *, method: str = "POST", path: str = "/translate", **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        """Return status, text or document, and headers of an answer."""
        connection = self.connect()
        given = {"Content-Type": "application/json", **{name.replace("_", "-"): text for name, text in headers.items()}}
        try:
            connection.request(method, path, body, given)
            answer = connection.getresponse()
            text = answer.read().decode("utf-8")
        finally:
            connection.close()
        kind = answer.getheader("content-type", "")
        return answer.status, json.loads(text) if kind == "application/json" else text, dict(answer.getheaders())

    def translate(self, *lines: str, **keys: Any) -> tuple[int, Any, dict[str, str]]:
        """Send lines."""
        return self.send(json.dumps({"lines": lines, **keys}).encode())

    def metric(self, name: str) -> float:
        """Return a value of /metrics."""
        _, text, _ = self.send(method="GET", path="/metrics")
        prefix = f"fairseq_depthwise_{name} "
        return next((float(line.removeprefix(prefix)) for line in text.splitlines() if line.startswith(prefix)), 0.0)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds."""
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, "it does not come to hold"
            time.sleep(0.01)


@contextmanager
def served(translator: Any, *, explain: Any = None, **options: Any) -> Iterator[Client]:
    """Serve on a free port, until the end of the block."""
    service = Service(translator, ServerOptions(**{"wait_ms": 0.0, **options}), explain=explain)
    server = server_of(service, service.options.timeout)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield Client(listener.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join(PATIENCE)
    assert not thread.is_alive()
