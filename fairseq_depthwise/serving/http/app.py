"""The server: translations over HTTP with JSON, a page for people, health and metrics."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, Protocol

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairseq_compat import UserError
from fairseq_depthwise.serving.http.batching import Batcher, Job, QueueFullError
from fairseq_depthwise.serving.http.messages import (
    DETAILS,
    Limits,
    TranslateRequest,
    explain_request,
    openapi,
    translate_request,
)

#: Host headers of a server that only this machine can reach; others are of a page that rebinds its name to us.
LOCAL_HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})

#: Upper bounds of the histogram of seconds.
_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, math.inf)

#: A body that is too long is read and thrown away up to so many times the limit: then the client reads our answer.
_DRAINED = 8

#: As nginx calls it: the client left before it was answered.
_CLIENT_LEFT = 499

_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}

#: Explains the translation of a line: line, rank of the hypothesis, source and target language.
Explain = Callable[[str, int, str, str], dict[str, Any]]


class Translator(Protocol):
    """What is needed of a :class:`~fairseq_depthwise.serving.loaded_translator.LoadedTranslator`."""

    @property
    def languages(self) -> tuple[str, str]: ...

    def translations(
        self, lines: Sequence[str], *, source_lang: str | None = None, target_lang: str | None = None
    ) -> Sequence[Any]: ...


class _Key(NamedTuple):
    """Lines of equal keys are searched together."""

    kind: str
    source_lang: str
    target_lang: str


class Service:
    """A translator and what is known of the requests to it.

    Args:
        translator: used by one thread only.
        limits: of requests.
        few: the same, but with no more than ``limits.nbest`` translations of a line, for requests that want no more.
        batch_lines: lines that are searched together at most.
        wait: seconds that lines wait for others.
        explain: called by the same thread; or a sentence that says why nothing can be explained.
        hosts: Host headers that are answered, without ports; None for all.
        version: of the program.

    Attributes:
        app: for an ASGI server.
    """

    def __init__(
        self,
        translator: Translator,
        limits: Limits,
        *,
        few: Translator | None = None,
        batch_lines: int = 256,
        wait: float = 0.005,
        explain: Explain | str = "this server does not explain",
        hosts: frozenset[str] | None = LOCAL_HOSTS,
        version: str = "",
    ) -> None:
        self.limits = limits
        self._translators = {"few": few or translator, "all": translator}
        self._explain = explain
        self._languages = translator.languages
        self._openapi = openapi(limits, version)
        self._page, self._page_policy = _page()
        self._metrics = _Metrics()
        self.batcher = Batcher(self._search, queue_lines=limits.queue_lines, batch_lines=batch_lines, wait=wait)
        routes = [
            Route("/translate", self._post_translate, methods=["POST"]),
            Route("/explain", self._post_explain, methods=["POST"]),
            Route("/health", self._get_health),
            Route("/metrics", self._get_metrics),
            Route("/openapi.json", self._get_openapi),
            Route("/", self._get_page),
        ]
        handlers: dict[Any, Any] = {HTTPException: _error_response, Exception: _failure_response}
        starlette = Starlette(routes=routes, exception_handlers=handlers)
        starlette.router.redirect_slashes = False  # it would answer with the Host header that it was given
        self.app: ASGIApp = _Guard(starlette, hosts, self._metrics)

    def _search(self, key: _Key, lines: Sequence[Any]) -> Sequence[Any]:
        if key.kind == "explain":
            assert callable(self._explain)
            return [self._explain(line, rank, key.source_lang, key.target_lang) for line, rank in lines]
        translator = self._translators[key.kind]
        return translator.translations(lines, source_lang=key.source_lang, target_lang=key.target_lang)

    async def _post_translate(self, request: Request) -> Response:
        deadline = monotonic() + self.limits.timeout
        asked = translate_request(await self._body(request, deadline), self.limits)
        kind = "few" if asked.nbest <= self.limits.nbest else "all"
        key = self._key(kind, asked.source_lang, asked.target_lang)
        parts = self._parts(request, key, asked.lines, deadline, stream=asked.stream)
        if asked.stream:
            first = await anext(parts)  # what fails before it has a status of its own
            return _StreamedLines(first, parts, lambda found: _translation(found, asked), self.limits.timeout)
        return _json_response({"translations": [_translation(found, asked) async for part in parts for found in part]})

    async def _post_explain(self, request: Request) -> Response:
        deadline = monotonic() + self.limits.timeout
        asked = explain_request(await self._body(request, deadline), self.limits)
        if isinstance(self._explain, str):
            raise HTTPException(501, self._explain)
        key = self._key("explain", asked.source_lang, asked.target_lang)
        async for (explanation,) in self._parts(request, key, [(asked.line, asked.rank)], deadline):
            return _json_response(explanation)
        raise AssertionError("a line has one explanation")

    async def _get_health(self, request: Request) -> Response:
        alive = self.batcher.alive
        source, target = self._languages
        document = {
            "status": "ok" if alive else "failed",
            "source_lang": source,
            "target_lang": target,
            "nbest": self.limits.nbest,
            "most_nbest": self.limits.most_nbest,
            "waiting_lines": self.batcher.waiting,
        }
        return _json_response(document, 200 if alive else 503)

    async def _get_metrics(self, request: Request) -> Response:
        return Response(self._metrics.text(self.batcher), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _get_openapi(self, request: Request) -> Response:
        return _json_response(self._openapi)

    async def _get_page(self, request: Request) -> Response:
        return Response(
            self._page,
            media_type="text/html; charset=utf-8",
            headers={"content-security-policy": self._page_policy},
        )

    def _key(self, kind: str, source_lang: str | None, target_lang: str | None) -> _Key:
        source, target = self._languages
        return _Key(kind, source_lang or source, target_lang or target)

    async def _body(self, request: Request, deadline: float) -> bytes:
        """Read the body.

        Raises:
            HTTPException: it is too long, no JSON by its header, or does not come in time.
        """
        given = request.headers.get("content-type", "")
        kind, _, parameters = given.lower().partition(";")
        charset = parameters.partition("charset=")[2].strip(' "')
        if kind.strip() != "application/json" or charset not in ("", "utf-8"):
            raise HTTPException(415, f"Content-Type is {given[:60]!a}; send application/json, in UTF-8")
        most = self.limits.max_body
        length = request.headers.get("content-length", "")
        too_long = f"the body has more than {most:,} bytes, which are allowed; send fewer lines at a time"
        if length.isdecimal() and int(length[:18]) > _DRAINED * most:
            raise HTTPException(413, too_long)
        body = bytearray()
        size = 0

        async def read() -> None:
            nonlocal size
            async for chunk in request.stream():
                size += len(chunk)
                if size <= most:
                    body.extend(chunk)
                elif size > _DRAINED * most:
                    break

        try:
            await asyncio.wait_for(read(), deadline - monotonic())
        except ClientDisconnect:
            raise HTTPException(_CLIENT_LEFT, "the client left") from None
        except asyncio.TimeoutError:
            raise HTTPException(408, f"the body did not arrive within {self.limits.timeout:g} s") from None
        if size > most:
            raise HTTPException(413, too_long)
        return bytes(body)

    async def _parts(
        self, request: Request, key: _Key, lines: Sequence[Any], deadline: float, *, stream: bool = False
    ) -> AsyncGenerator[Sequence[Any], None]:
        """Yield results of lines, in order, as soon as a search ends; what still waits at the end is dropped.

        The deadline is that of all lines, or with ``stream`` of the first ones, and each part renews it.

        Raises:
            HTTPException: the queue is full, the time is over, the client left, or the search failed.
        """
        loop = asyncio.get_running_loop()
        parts: asyncio.Queue[Any] = asyncio.Queue()

        def deliver(part: Any) -> None:
            with suppress(RuntimeError):  # the server has ended
                loop.call_soon_threadsafe(parts.put_nowait, part)

        job = Job(key, lines, deliver)
        try:
            self.batcher.submit(job)
        except QueueFullError as error:
            sentence = (
                f"lines has {len(lines):,} lines and {error.waiting:,} are waiting; at most "
                f"{self.limits.queue_lines:,} may wait; try again later"
            )
            raise HTTPException(503, sentence, {"Retry-After": str(error.retry_after)}) from error
        left = asyncio.ensure_future(_disconnected(request.receive))
        done = 0
        try:
            while done < len(lines):
                arrived = asyncio.ensure_future(parts.get())
                try:
                    await asyncio.wait(
                        {arrived, left}, timeout=deadline - monotonic(), return_when=asyncio.FIRST_COMPLETED
                    )
                    if left.done():
                        raise HTTPException(_CLIENT_LEFT, "the client left")
                    if not arrived.done():
                        raise HTTPException(
                            504,
                            f"the request took longer than {self.limits.timeout:g} s, in which {done:,} of "
                            f"{len(lines):,} lines were translated; send fewer lines at a time",
                        )
                    part = arrived.result()
                finally:
                    arrived.cancel()
                if isinstance(part, UserError):
                    raise HTTPException(400, str(part)) from part
                if isinstance(part, Exception):
                    raise HTTPException(500, "the search failed; the server's log says why") from part
                done += len(part)
                yield part
                if stream:
                    deadline = monotonic() + self.limits.timeout
        finally:
            left.cancel()
            self.batcher.drop(job)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class _StreamedLines(Response):
    """A JSON object in each line, sent part by part; a failure becomes the last line."""

    media_type = "application/x-ndjson"

    def __init__(
        self,
        first: Sequence[Any],
        parts: AsyncGenerator[Sequence[Any], None],
        document: Callable[[Any], dict[str, Any]],
        timeout: float,
    ) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._first, self._parts, self._document, self._timeout = first, parts, document, timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            # A client that does not read holds the connection up.
            await asyncio.wait_for(send(message), self._timeout)

        async def send_part(part: Sequence[Any]) -> None:
            text = "".join(f"{_dumped(self._document(found))}\n" for found in part)
            await send_in_time({"type": "http.response.body", "body": text.encode("utf-8"), "more_body": True})

        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await send_part(self._first)
            try:
                async for part in self._parts:
                    await send_part(part)
            except HTTPException as error:
                line = _dumped({"error": error.detail}) + "\n"
                await send_in_time({"type": "http.response.body", "body": line.encode(), "more_body": True})
            await send_in_time({"type": "http.response.body", "body": b""})
        except asyncio.TimeoutError:
            pass  # the connection is closed in the middle, by which the client knows
        finally:
            await self._parts.aclose()


def _translation(found: Any, asked: TranslateRequest) -> dict[str, Any]:
    """Return a translation as it is sent."""
    hypotheses = [_hypothesis(hypothesis, asked.details) for hypothesis in found.hypotheses[: asked.nbest]]
    document = dict(hypotheses[0])
    if asked.nbest > 1:
        document["nbest"] = hypotheses
    if found.cut_off:
        document["cut_off"] = True
    return document


def _hypothesis(hypothesis: Any, details: Sequence[str]) -> dict[str, Any]:
    score = float(hypothesis.score)
    fields = [field for name in details for field in DETAILS[name]]
    return {
        "text": hypothesis.text,
        "score": score if math.isfinite(score) else None,
        **{field: getattr(hypothesis, field) for field in fields},
    }


def _dumped(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False, allow_nan=False)


def _json_response(document: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(_dumped(document).encode("utf-8"), status, headers, media_type="application/json")


async def _error_response(request: Request, error: HTTPException) -> Response:
    sentence = error.detail
    if error.status_code == 404:
        sentence = f"there is no {request.url.path[:60]!a}; see /openapi.json"
    if error.status_code == 405:
        sentence = f"{request.method} is not answered here; use {(error.headers or {}).get('Allow', 'another method')}"
    return _json_response({"error": sentence}, error.status_code, dict(error.headers or {}))


async def _failure_response(request: Request, error: Exception) -> Response:
    return _json_response({"error": "the server failed; its log says why"}, 500)


class _Guard:
    """Refuses foreign Host headers and bodies of two lengths, adds headers to answers, and counts them."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str] | None, metrics: _Metrics) -> None:
        self._app, self._hosts, self._metrics = app, hosts, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        started = monotonic()
        status = _CLIENT_LEFT

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = list(message.get("headers", []))
                names = {name for name, _ in headers}
                headers += [
                    (name.encode(), value.encode()) for name, value in _HEADERS.items() if name.encode() not in names
                ]
                message = {**message, "headers": headers}
            await send(message)

        app = self._app
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
            sentence = "Content-Length and Transfer-Encoding are both given; send one of them"
            app = _json_response({"error": sentence}, 400, {"connection": "close"})
        if self._hosts is not None:
            for name, value in scope["headers"]:
                host = value.decode("latin-1")
                if name == b"host" and re.sub(r":\d*$", "", host).lower() not in self._hosts:
                    allowed = ", ".join(sorted(self._hosts))
                    app = _json_response({"error": f"Host is {host[:60]!a}; this server is {allowed}"}, 400)
        try:
            await app(scope, receive, send_with_headers)
        finally:
            self._metrics.count(scope["path"], status, monotonic() - started)


class _Metrics:
    """Counts of answers, as Prometheus reads them."""

    def __init__(self) -> None:
        self._statuses: Counter[int] = Counter()
        self._buckets = [0] * len(_BUCKETS)
        self._seconds = 0.0

    def count(self, path: str, status: int, seconds: float) -> None:
        """Count an answer; those to /translate with their time."""
        self._statuses[status] += 1
        if path == "/translate":
            self._seconds += seconds
            self._buckets[next(index for index, bound in enumerate(_BUCKETS) if seconds <= bound)] += 1

    def text(self, batcher: Batcher) -> str:
        """Return all in the text format 0.0.4."""
        lines: list[str] = []

        def add(name: str, kind: str, text: str, *samples: tuple[str, float]) -> None:
            name = f"fairseq_depthwise_{name}"
            lines.extend([f"# HELP {name} {text}", f"# TYPE {name} {kind}"])
            lines.extend(f"{name}{suffix} {value:.12g}" for suffix, value in samples)

        statuses = [(f'{{status="{status}"}}', float(count)) for status, count in sorted(self._statuses.items())]
        add("requests_total", "counter", "Answers by status; 499 where the client left.", *statuses)
        add("lines_total", "counter", "Lines searched.", ("", batcher.lines))
        add("batches_total", "counter", "Searches for several lines at once.", ("", batcher.batches))
        add("search_seconds_total", "counter", "Seconds spent in searches.", ("", batcher.seconds))
        add("queue_lines", "gauge", "Lines that wait for a search.", ("", batcher.waiting))
        add("queue_lines_limit", "gauge", "Lines that may wait.", ("", batcher.queue_lines))
        below, samples = 0, []
        for bound, count in zip(_BUCKETS, self._buckets, strict=True):
            below += count
            samples.append((f'_bucket{{le="{"+Inf" if math.isinf(bound) else f"{bound:g}"}"}}', float(below)))
        add(
            "request_seconds", "histogram", "Seconds from a request to /translate to the end of its answer.",
            *samples, ("_sum", self._seconds), ("_count", below),
        )  # fmt: skip
        return "\n".join(lines) + "\n"


def _page() -> tuple[bytes, str]:
    """Return the page, and the policy that lets its own script and style run and no other."""
    page = Path(__file__).with_name("page.html").read_bytes()

    def hashes(tag: bytes) -> str:
        found = re.findall(rb"<%b>(.*?)</%b>" % (tag, tag), page, re.DOTALL)
        return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'" for text in found)

    policy = (
        f"default-src 'none'; script-src {hashes(b'script')}; style-src {hashes(b'style')}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return page, policy
