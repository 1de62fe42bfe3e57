"""The server: uvicorn with its limits, and two that it lacks, for connections that never send a complete request."""

from __future__ import annotations

import json
import math
import resource
from time import monotonic
from typing import Any

import h11
import uvicorn
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 2048  # fewer if the process may not open twice as many files

#: Seconds for the header of a request, from the start of the connection or the end of the previous response.
HEADER_TIMEOUT = 10.0

#: Headers of all responses: no other site may read them, and no browser may guess their types or cache them.
HEADERS = [
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
    ("cross-origin-resource-policy", "same-origin"),
]


def server_of(app: Any, timeout: float) -> uvicorn.Server:
    """Return a server, which gives requests that have begun their usual time when it is told to end."""
    # Half of the file descriptors: the process needs some itself, and uvicorn accepts before it counts.
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_CONNECTIONS if files == resource.RLIM_INFINITY else min(MOST_CONNECTIONS, files // 2)
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        log_level="error",
        access_log=False,
        headers=HEADERS,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=most,
        backlog=most // 4,  # the connections that are accepted at once, before any is counted
        # A little longer than a request's own limit, so that the request still gets its 504.
        timeout_graceful_shutdown=math.ceil(timeout) + 1,
    )
    return uvicorn.Server(config)


class Connection(H11Protocol):
    """uvicorn's connection, closed if a header takes too long; uvicorn's own responses are JSON, too.

    If there are too many connections, the one that has waited longest for a request is closed.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Replaces uvicorn's limit, beyond which it responds with plain text.
        self._most: int = self.config.limit_concurrency or MOST_CONNECTIONS
        self.limit_concurrency = None
        # uvicorn calls self.app for each request.
        self._answer: Any = self.config.loaded_app
        self.app = self._answer_unless_too_many
        self._header_timer: Any = None

    @property
    def _waits_for_header(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._waits_since = monotonic()
        self._time_header()
        other_connections = self.connections - {self}
        waiting = [connection for connection in other_connections if connection._waits_for_header]
        if len(self.connections) >= self._most and waiting:
            # Idle connections must not keep others out.
            longest = min(waiting, key=lambda connection: connection._waits_since)
            longest.transport.abort()
            # uvicorn would do so only in the loop's next turn; until then this connection would be one too many.
            self.connections.discard(longest)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._time_header()

    def on_response_complete(self) -> None:
        self._waits_since = monotonic()
        super().on_response_complete()
        self._time_header()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_timer()

    def _time_header(self) -> None:
        """Start the timer when a header is due, unless it is running, and stop it when the whole header is there."""
        if not self._waits_for_header:
            self._stop_timer()
        # Not restarted by each byte: a client that sends one every few seconds would stay connected forever.
        elif self._header_timer is None and not self.transport.is_closing():
            self._header_timer = self.loop.call_later(HEADER_TIMEOUT, self.timeout_keep_alive_handler)

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    async def _answer_unless_too_many(self, scope: Scope, receive: Receive, send: Send) -> None:
        if len(self.connections) < self._most and len(self.tasks) <= self._most:  # including this task
            await self._answer(scope, receive, send)
            return
        refused = JSONResponse({"error": "there are too many connections; try again later"}, 503)
        refused.headers["connection"] = "close"
        await refused(scope, receive, send)

    def send_400_response(self, msg: str) -> None:
        """Respond to what is not an HTTP request; uvicorn would do so with plain text."""
        body = json.dumps({"error": msg}).encode()
        headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event))
        self.transport.close()
