"""A web server for the files of a folder, as the public homes of corpora are, with faults that can be switched on.

    with MirrorServer(folder) as mirror:
        mirror.faults["big.tgz"] = Fault(cut_after=1000)
        ... f"{mirror.url}/big.tgz" ...
        assert mirror.requests == [("big.tgz", None), ("big.tgz", "bytes=1000-")]

It knows ``Range``, and ends with its ``with`` block, hanging connections too.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


@dataclass
class Fault:
    """What is wrong with one file; without arguments nothing is.

    Attributes:
        cut_after: bytes of a body after which the connection ends, though more were announced.
        hang_after: bytes of a body after which nothing comes any more, but the connection stays; 0 sends headers only.
        times: how many responses are cut or hang; None for all.
        wrong_bytes: whether each body has its bits inverted, at its full length.
        ranges: whether ``Range`` is heeded, and announced.
        statuses: of the next responses, for instance ``[503, 503]``; an empty list for none.
    """

    cut_after: int | None = None
    hang_after: int | None = None
    times: int | None = None
    wrong_bytes: bool = False
    ranges: bool = True
    statuses: list[int] = field(default_factory=list)


class MirrorServer(ThreadingHTTPServer):
    """Serves ``folder`` on a free port of 127.0.0.1; ``requests``: name and ``Range`` of each, in their order."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.faults: dict[str, Fault] = {}
        self.requests: list[tuple[str, str | None]] = []
        self.ending = threading.Event()
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> MirrorServer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.ending.set()
        self.shutdown()
        self.server_close()
        self._thread.join()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is not worth a traceback."""


class _Handler(BaseHTTPRequestHandler):
    server: MirrorServer

    def do_GET(self) -> None:  # the name that http.server calls
        name = self.path.lstrip("/")
        server, path, asked = self.server, self.server.folder / name, self.headers["Range"]
        server.requests.append((name, asked))
        fault = server.faults.get(name, Fault())
        status = fault.statuses.pop(0) if fault.statuses else 200
        cut, hang = self._cut(fault)
        if status == 200 and not path.is_file():
            status = 404
        if status != 200:
            self.send_error(status)
            return
        content = path.read_bytes()
        found = re.fullmatch(r"bytes=(\d+)-", asked or "") if fault.ranges else None
        start = int(found[1]) if found else 0
        if start >= len(content) > 0:
            self.send_error(416)
            return
        body = content[start:]
        if fault.wrong_bytes:
            body = bytes(byte ^ 255 for byte in body)
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: cut if cut is not None else hang])
        self.wfile.flush()
        if hang is not None:
            server.ending.wait()

    def _cut(self, fault: Fault) -> tuple[int | None, int | None]:
        """Where this response is cut off, and where it hangs."""
        if fault.times is not None and (fault.cut_after is not None or fault.hang_after is not None):
            if fault.times == 0:
                return None, None
            fault.times -= 1
        return fault.cut_after, fault.hang_after

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on stderr."""
