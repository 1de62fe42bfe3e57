"""Options of the server. Nothing here imports PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fairseq_depthwise.options import CheckedOptions, between, option


@dataclass(frozen=True)
class ServerOptions(CheckedOptions):
    """Where the server listens, and its limits."""

    TITLE: ClassVar[str] = "server"

    host: str | None = option(
        None,
        "listen there, and answer whatever the Host header is (default: 127.0.0.1, and Host must be it or localhost)",
        metavar="ADDRESS",
    )
    port: int = option(8000, "0 picks a free one", type=between(0, 65535, int))
    wait_ms: float = option(5.0, "wait so long for more lines before a search", type=between(0, 10_000), metavar="MS")
    batch_lines: int = option(
        256, "lines of all requests that are searched together; --max-tokens and --batch-size divide them further"
    )
    queue_lines: int = option(4000, "answer 503 where more lines would wait")
    timeout: float = option(60.0, "answer 504 after so many seconds", type=between(0.01, 86_400), metavar="S")
    max_body: int = option(1 << 20, "bytes of a request")
    max_lines: int = option(1000, "lines of a request")
    max_chars: int = option(10_000, "characters of a line")
