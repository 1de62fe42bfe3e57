"""The server process: uvicorn, with its limits and one that it lacks, on connections that send no whole request."""

from __future__ import annotations

import math
import resource
from time import monotonic
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 2048  # fewer where the process may not have twice as many files open

#: Of all answers: no other site may read them, no browser guess their types or keep them.
HEADERS = [
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
    ("cross-origin-resource-policy", "same-origin"),
]


def server_of(app: Any, timeout: float) -> uvicorn.Server:
    """Return a server; when it is to end, what it has begun may take as long as a request."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_CONNECTIONS if files == resource.RLIM_INFINITY else min(MOST_CONNECTIONS, files // 2)
    config = uvicorn.Config(
        app, http=Connection, ws="none", loop="asyncio", lifespan="on", log_config=None, log_level="error",
        access_log=False, headers=HEADERS, proxy_headers=False, server_header=False, limit_concurrency=most,
        backlog=most // 4,  # so many are accepted at once, before any is counted
        timeout_graceful_shutdown=math.ceil(timeout) + 1,
    )  # fmt: skip
    return uvicorn.Server(config)


class Connection(H11Protocol):
    """uvicorn's; where there are too many, the one that has waited longest for a request ends."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._waits_since = monotonic()
        waiting = [one for one in self.connections if one.cycle is None or one.cycle.response_complete]
        if len(self.connections) >= self.limit_concurrency and waiting:
            longest = min(waiting, key=lambda one: one._waits_since)
            longest.transport.abort()
            self.connections.discard(longest)

    def on_response_complete(self) -> None:
        self._waits_since = monotonic()
        super().on_response_complete()
