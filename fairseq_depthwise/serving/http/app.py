"""The server: translations over HTTP with JSON, a page for people, health and metrics."""

# mypy: disable-error-code="valid-type, attr-defined"
# The types of requests are created at run time, with the limits of the server.

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, Literal

import anyio
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse
from fastapi.staticfiles import StaticFiles
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from pydantic import BaseModel, ConfigDict, Field, create_model
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import Message, Receive, Scope, Send

from fairseq_compat import UserError
from fairseq_depthwise.serving.http.batching import Batcher
from fairseq_depthwise.serving.server_options import ServerOptions
from fairseq_depthwise.translation.translation_options import TranslatorOptions

log = logging.getLogger(__name__)

#: Host headers accepted by a server that only this machine can reach; others come from pages that use DNS rebinding.
LOCAL_HOSTS = ["127.0.0.1", "localhost", "[::1]"]

#: The page with its script and style, and the policy that lets only these run.
_PAGE = Path(__file__).with_name("page")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)

#: Upper bounds of the histogram of seconds.
_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

#: Option of a request, if the translator was loaded with it -> the fields of ``Hypothesis`` that it adds.
DETAILS = {"alignment": ("alignment",), "token_scores": ("tokens", "token_scores")}


def request_models(limits: ServerOptions, nbest: int, loaded: TranslatorOptions) -> tuple[Any, Any]:
    """Return the types of requests to /translate, with ``nbest`` translations by default, and to /explain."""
    config = ConfigDict(extra="forbid", strict=True)
    languages: dict[str, Any] = dict.fromkeys(("source_lang", "target_lang"), (str | None, None))
    # Details that the translator was not loaded for accept nothing but false.
    details: dict[str, Any] = {}
    for name in DETAILS:
        kind: Any = bool if getattr(loaded, name) else Literal[False]
        details[name] = (kind, False)
    # With a line break, one line would become two, and translations would no longer match lines.
    line = Annotated[str, Field(max_length=limits.max_chars, pattern=r"^[^\r\n]*$")]
    lines: Any = Annotated[list[line], Field(min_length=1, max_length=limits.max_lines)]
    number, stream = Field(nbest, ge=1, le=loaded.nbest), Field(False, description="answer line by line")
    translate = create_model(
        "TranslateRequest",
        __config__=config,
        lines=(lines, ...),
        nbest=(int, number),
        stream=(bool, stream),
        **languages,
        **details,
    )
    sentence = Annotated[line, Field(pattern=r"\S")]
    rank = (int, Field(0, ge=0, lt=loaded.nbest))
    explain = create_model("ExplainRequest", __config__=config, line=(sentence, ...), rank=rank, **languages)
    return translate, explain


class Hypothesis(BaseModel):
    """A translation; its score is log2 of its probability divided by a power of its length."""

    text: str
    score: float
    alignment: list[tuple[int, int]] | None = Field(None, description="words of source and translation, from 0")
    tokens: list[str] | None = None
    token_scores: list[float] | None = None


class Translation(Hypothesis):
    """The best translation of a line, and all that were asked for."""

    nbest: list[Hypothesis] | None = None
    cut_off: Literal[True] | None = Field(None, description="it has as many tokens as it may have")


class Translations(BaseModel):
    """Translations in the order of the lines."""

    translations: list[Translation]


class Error(BaseModel):
    """Why there is no answer."""

    error: str


class Service:
    """The application that an ASGI server runs; ``nbest`` is the default number of translations of a line.

    ``explain(line, rank, source_lang, target_lang)`` is None if nothing can be explained.
    """

    def __init__(
        self,
        translator: Any,
        options: ServerOptions,
        *,
        nbest: int = 1,
        explain: Callable[[str, int, str, str], dict[str, Any]] | None = None,
        version: str = "0",
    ) -> None:
        self.options = options
        self._translator = translator
        self._explain = explain
        self._batcher = Batcher(self._search, options)
        self._registry = CollectorRegistry()
        names: dict[str, Any] = {"namespace": "fairseq_depthwise", "registry": self._registry}
        self._lines = Counter("lines", "Lines searched.", **names)
        self._batches = Counter("batches", "Searches for several lines at once.", **names)
        self._seconds = Counter("search_seconds", "Seconds spent in searches.", **names)
        self._requests = Counter("requests", "Answers by status; 499 where the client left.", ["status"], **names)
        text = "Seconds from a request to /translate to the end of its answer."
        self._request_seconds = Histogram("request_seconds", text, buckets=_BUCKETS, **names)
        Gauge("queue_lines", "Lines that wait for a search.", **names).set_function(lambda: self._batcher.waiting)
        Gauge("queue_lines_limit", "Lines that may wait.", **names).set(options.queue_lines)
        self._fastapi = fastapi = FastAPI(
            title="fairseq-depthwise serve",
            version=version,
            lifespan=self._lifespan,
            # FastAPI's documentation pages load scripts from other sites; /openapi.json remains.
            docs_url=None,
            redoc_url=None,
            redirect_slashes=False,
            responses={"4XX": {"model": Error}, "5XX": {"model": Error}},
        )
        fastapi.add_middleware(RequestBodyLimitMiddleware, max_body_size=options.max_body)
        fastapi.add_middleware(TrustedHostMiddleware, allowed_hosts=["*"] if options.host else LOCAL_HOSTS)
        for kind in (HTTPException, RequestValidationError, UserError, Exception):
            fastapi.add_exception_handler(kind, _refuse)
        translate_request, explain_request = request_models(options, nbest, translator.options)
        answer = {"model": Translations, "content": {"application/x-ndjson": {}}}

        @fastapi.post("/translate", responses={200: answer})
        async def translate(asked: translate_request, request: Request) -> Response:
            # Turning further hypotheses into text takes time.
            most = nbest if asked.nbest <= nbest else translator.options.nbest
            parts = self._results(most, asked, asked.lines, request)
            if asked.stream:
                first = await anext(parts)  # a failure before the stream begins has its own status
                return StreamingResponse(_streamed(first, parts, asked), media_type="application/x-ndjson")
            translations: list[Translation] = []
            async for part in parts:
                translations += [_translation(translation, asked) for translation in part]
            document = Translations(translations=translations)
            return Response(document.model_dump_json(exclude_none=True), media_type="application/json")

        @fastapi.post("/explain")
        async def explanation_of(asked: explain_request, request: Request) -> dict[str, Any]:
            if explain is None:
                raise HTTPException(501, "there are no layers to look into; load a checkpoint, no exported folder")
            (explanation,) = await anext(self._results(None, asked, [(asked.line, asked.rank)], request))
            return explanation

        @fastapi.get("/health")
        async def health(response: Response) -> dict[str, Any]:
            # Failed searches do not end this task: _search_all catches their exceptions.
            response.status_code = 503 if self._searching.done() else 200
            source, target = translator.languages
            return {
                "status": "failed" if self._searching.done() else "ok",
                "source_lang": source,
                "target_lang": target,
                "languages": translator.known_languages,
                "nbest": nbest,
                "most_nbest": translator.options.nbest,
                "waiting_lines": self._batcher.waiting,
            }

        @fastapi.get("/metrics")
        async def metrics() -> Response:
            return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)

        @fastapi.get("/", include_in_schema=False)
        async def page_for_people() -> Response:
            return FileResponse(_PAGE / "page.html", headers={"content-security-policy": _POLICY})

        fastapi.mount("/page", StaticFiles(directory=_PAGE))

    @asynccontextmanager
    async def _lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        self._searching = asyncio.create_task(self._batcher.run())
        yield
        self._searching.cancel()

    def _results(
        self, nbest: int | None, asked: Any, lines: Sequence[Any], request: Request
    ) -> AsyncIterator[Sequence[Any]]:
        """Yield ``nbest`` translations of each line; with None, explanations for pairs of line and rank."""
        source, target = self._translator.languages
        key = (nbest, asked.source_lang or source, asked.target_lang or target)
        return self._batcher.results(key, lines, request.is_disconnected)

    def _search(self, key: tuple[int | None, str, str], lines: Sequence[Any]) -> Sequence[Any]:
        (nbest, source, target), started = key, monotonic()
        try:
            if nbest is None and self._explain is not None:
                return [self._explain(line, rank, source, target) for line, rank in lines]
            translations: Sequence[Any] = self._translator.translations(
                lines, source_lang=source, target_lang=target, nbest=nbest
            )
            return translations
        finally:
            self._batches.inc()
            self._lines.inc(len(lines))
            self._seconds.inc(monotonic() - started)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """End requests that take too long, and count responses.

        The timeout applies until the response begins, and again to each part of a stream until it has been read.
        """
        if scope["type"] != "http":
            await self._fastapi(scope, receive, send)
            return
        started, status = monotonic(), 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            limit.deadline = anyio.current_time() + self.options.timeout
            await send(message)

        try:
            with anyio.move_on_after(self.options.timeout) as limit:
                await self._fastapi(scope, receive, _errors_as_json(scope, receive, answer))
            # Once an answer has begun, its status has been sent, and all that is left is to close the connection.
            if limit.cancelled_caught and not status:
                sentence = f"the request took longer than {self.options.timeout:g} s; send fewer lines at a time"
                await JSONResponse({"error": sentence}, 504)(scope, receive, answer)
        finally:
            # No status: the client left before an answer began.
            self._requests.labels(status or 499).inc()
            if scope["path"] == "/translate":
                self._request_seconds.observe(monotonic() - started)


def _errors_as_json(scope: Scope, receive: Receive, send: Send) -> Send:
    """Return a ``send`` that turns all errors into JSON, even those that Starlette's limits send as plain text."""
    plain: dict[str, Any] = {}

    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = Headers(raw=message["headers"])
            if message["status"] >= 400 and headers.get("content-type") != "application/json":
                # Hold it back until the text is complete.
                plain.update(status=message["status"], text=b"")
                return
        if not plain:
            await send(message)
            return
        plain["text"] += message.get("body", b"")
        if not message.get("more_body"):
            await JSONResponse({"error": plain["text"].decode()}, plain["status"])(scope, receive, send)

    return answer


async def _streamed(first: Sequence[Any], parts: AsyncIterator[Sequence[Any]], asked: Any) -> AsyncIterator[str]:
    """Yield one JSON object per line, part by part; a failure becomes the last line."""
    part: Sequence[Any] | None = first
    try:
        while part is not None:
            lines = [_translation(translation, asked).model_dump_json(exclude_none=True) for translation in part]
            yield "".join(f"{line}\n" for line in lines)
            # The status has been sent, so a failure can only be reported in the body.
            part = await anext(parts, None)
    except Exception as error:
        log.exception("a stream failed")
        yield Error(error=_sentence(error)).model_dump_json() + "\n"


def _translation(translation: Any, asked: Any) -> Translation:
    """Return the fields of a translator's ``Translation`` that a request asks for."""
    names = ["text", "score"]
    for detail, fields in DETAILS.items():
        if getattr(asked, detail):
            names += fields
    hypotheses = []
    for hypothesis in translation.hypotheses[: asked.nbest]:
        hypotheses.append({name: getattr(hypothesis, name) for name in names})
    return Translation.model_validate(
        {**hypotheses[0], "nbest": hypotheses if asked.nbest > 1 else None, "cut_off": translation.cut_off or None}
    )


async def _refuse(request: Request, error: Exception) -> Response:
    """Respond to an exception; the traceback of an unexpected one goes to stderr only."""
    status, sentence, headers = 500, _sentence(error), None
    if isinstance(error, HTTPException):
        status, sentence, headers = error.status_code, error.detail, error.headers
    elif isinstance(error, RequestValidationError):
        wrong = error.errors()[0]
        status = 413 if wrong["type"] in ("too_long", "string_too_long") else 400
        sentence = f"{'.'.join(map(ascii, wrong['loc'][1:])) or 'the body'}: {wrong['msg']}"
    elif isinstance(error, UserError):
        status = 400
    # The message may quote half of a surrogate pair, which JSON can contain but UTF-8 cannot encode.
    return JSONResponse({"error": sentence.encode(errors="backslashreplace").decode()}, status, headers)


def _sentence(error: Exception) -> str:
    return str(error) if isinstance(error, UserError) else "the search failed; the server's log says why"
