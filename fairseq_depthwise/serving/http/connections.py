"""Limits of what a client costs that sends no whole request; uvicorn has none for these."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import resource
import sys
from time import monotonic
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

if TYPE_CHECKING:
    from fairseq_depthwise.serving.http.app import Service

#: Seconds in which the header of a request must have come, from the start of a connection or the last answer.
HEADER_SECONDS = 10.0

#: Connections at most; fewer where the process may not have twice as many files open.
MOST_CONNECTIONS = 2048

#: Seconds between two records of the same failure.
BETWEEN_RECORDS = 1.0


def server_of(service: Service) -> uvicorn.Server:
    """Return a server; when it is to end, what it has begun may take as long as a request."""
    for name in ("asyncio", "uvicorn.error", "fairseq_depthwise.serving.http.batching"):
        logging.getLogger(name).addFilter(_seldom)
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_CONNECTIONS if files == resource.RLIM_INFINITY else min(MOST_CONNECTIONS, files // 2)
    config = uvicorn.Config(
        service.app, http=Connection, ws="none", loop="asyncio", lifespan="off", log_config=None, log_level="warning",
        access_log=False, proxy_headers=False, server_header=False, limit_concurrency=most,
        backlog=most // 4,  # so many are accepted at once, before any is counted
        timeout_graceful_shutdown=math.ceil(service.limits.timeout) + 1,
    )  # fmt: skip
    return uvicorn.Server(config)


class Connection(H11Protocol):
    """uvicorn's, which ends where a request does not come, at once if another connection needs the room."""

    _timer: asyncio.TimerHandle | None = None  # while a request is waited for
    _refused = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        waiting = [one for one in self.connections if one._timer is not None]
        if waiting and len(self.connections) >= self.limit_concurrency:
            longest = min(waiting, key=lambda one: one._timer.when())
            longest.transport.abort()
            longest._stop_timer()
            self.connections.discard(longest)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._refused:
            super().data_received(data)

    def handle_events(self) -> None:
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_timer()

    def on_response_complete(self) -> None:
        self._start_timer()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request, and read on: the answer is lost where a connection ends with something unread."""
        if self.conn.our_state is not h11.IDLE:
            super().send_400_response(msg)
            return
        status = getattr(sys.exc_info()[1], "error_status_hint", 400)  # of h11; 431 for a header that is too long
        answer = {"error": "the request is not HTTP/1.1, or its path and headers are too long"}
        headers = [("content-type", "application/json"), ("connection", "close")]
        for event in (
            h11.Response(status_code=status, headers=headers, reason=STATUS_PHRASES[status]),
            h11.Data(data=json.dumps(answer).encode()),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event))
        self.transport.write_eof()
        self._refused = True

    def _start_timer(self) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(HEADER_SECONDS, self._end)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        self.transport.close()
        # Of an answer that has not been read yet.
        self.loop.call_later(self.config.timeout_graceful_shutdown, self.transport.abort)


class _Seldom(logging.Filter):
    """Lets a record pass unless one of the same place and error has passed within the last second."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[Any, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        failure = record.pathname, record.lineno, (record.exc_info or (None,))[0]
        now = monotonic()
        if now - self._last.get(failure, -math.inf) < BETWEEN_RECORDS:
            return False
        self._last[failure] = now
        return True


_seldom = _Seldom()
