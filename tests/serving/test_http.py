"""The server over real connections: answers, limits, wrong requests, clients that leave, and many at once."""

from __future__ import annotations

import json
import random
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from probe_checkpoints import checkpoint_of
from served import PATIENCE, Client, FakeTranslator, served

from fairseq_depthwise.analysis.explained_sentence import explain
from fairseq_depthwise.serving.http import connections
from fairseq_depthwise.translation.translator import BeamOptions, LoadedTranslator, TranslatorOptions

pytestmark = pytest.mark.slow

LIMITS = {"max_body": 2000, "max_lines": 5, "max_chars": 40, "queue_lines": 6}

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A server that only fast requests are sent to."""
    with served(FakeTranslator(), **LIMITS) as made:
        yield made


@pytest.fixture
def slow() -> Iterator[FakeTranslator]:
    """A translator whose searches wait for ``go``."""
    translator = FakeTranslator()
    translator.go.clear()
    yield translator
    translator.go.set()


def lives(client: Client) -> bool:
    status, document, _ = client.translate("abc")
    return (status, document) == (200, {"translations": [{"text": "cba", "score": -1.5}]})


# Answers.


def test_translations_in_order(client: Client) -> None:
    status, document, headers = client.translate("ab", "", "ünï", "long")
    assert status == 200
    assert [found["text"] for found in document["translations"]] == ["ba", "", "ïnü", "gnol"]
    assert [found.get("cut_off") for found in document["translations"]] == [None, None, None, True]
    assert headers["content-type"] == "application/json"
    _, document, _ = client.translate("ab", nbest=2, target_lang="xx")
    expected = [{"text": "ba", "score": -1.5}, {"text": "ba!", "score": -2.5}]
    assert document == {"translations": [{**expected[0], "nbest": expected}]}


def test_a_stream_has_a_line_as_soon_as_it_is_translated(slow: FakeTranslator) -> None:
    slow.free = 1
    with served(slow, batch_lines=2) as client:
        connection = client.connect()
        connection.request(
            "POST", "/translate", json.dumps({"lines": ["ab", "cd", "poison"], "stream": True}),
            {"Content-Type": "application/json"},
        )  # fmt: skip
        answer = connection.getresponse()
        assert answer.getheader("content-type") == "application/x-ndjson"
        assert [json.loads(answer.readline())["text"] for _ in range(2)] == ["ba", "dc"]
        slow.go.set()
        assert list(json.loads(answer.read())) == ["error"]
        connection.close()
        assert client.translate("poison", stream=True)[0] == 500


def test_health_metrics_and_description(client: Client) -> None:
    status, document, _ = client.send(method="GET", path="/health")
    assert (status, document["status"], document["target_lang"]) == (200, "ok", "tgt")
    assert document["languages"] == ["src", "tgt", "xx"]
    before = client.metric('requests_total{status="200"}'), client.metric("request_seconds_count")
    client.translate("ab", "cd")
    after = client.metric('requests_total{status="200"}'), client.metric("request_seconds_count")
    # Each look at a metric is a request, too.
    assert (after[0] - before[0], after[1] - before[1]) == (3, 1)
    _, document, _ = client.send(method="GET", path="/openapi.json")
    request = document["components"]["schemas"]["TranslateRequest"]
    assert request["properties"]["lines"]["maxItems"] == LIMITS["max_lines"]


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")
def test_page_in_a_browser(client: Client, tmp_path: Path) -> None:
    """Its script runs under its own policy and asks the server how many translations there are, and what languages."""
    picture = tmp_path / "page.png"
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
               "--virtual-time-budget=5000", f"--screenshot={picture}", "--dump-dom"]  # fmt: skip
    shown = subprocess.run(
        [*command, f"http://127.0.0.1:{client.port}/"], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    for choice in ("nbest", "source", "target"):
        assert re.search(rf'<select[^>]*id="{choice}".*?(<option.*?){{3}}</select>', shown.stdout, re.DOTALL)
    assert picture.stat().st_size > 5000


# What is refused.

WRONG: dict[str, tuple[bytes, int, str]] = {
    "empty": (b"", 400, "body"),
    "not UTF-8": (b'{"lines": ["\xff"]}', 400, "body"),
    "nested": (b"[" * 1900, 400, ""),
    "lines is a string": (b'{"lines": "abc"}', 400, "lines"),
    "a surrogate": (b'{"lines": ["a\\ud800"]}', 400, "lines"),
    "a line break": (b'{"lines": ["a\\nb"]}', 400, "lines"),
    "too long": (b" " * 500_000, 413, "."),
    "too many lines": (json.dumps({"lines": ["a"] * 6}).encode(), 413, "lines.* 5 "),
    "too many characters": (json.dumps({"lines": ["a" * 41]}).encode(), 413, "lines.* 40 "),
    "nbest 4": (b'{"lines": ["a"], "nbest": 4}', 400, "nbest.* 3"),
    "language": (b'{"lines": ["a"], "target_lang": "zz"}', 400, "target_lang zz"),
    "a language of half a character": (b'{"lines": ["a"], "target_lang": "\\ud800"}', 400, "target_lang"),
    "alignment": (b'{"lines": ["a"], "alignment": true}', 400, "alignment"),
    "fails": (b'{"lines": ["poison"]}', 500, "log"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_bodies(case: str, client: Client) -> None:
    body, expected, pattern = WRONG[case]
    status, document, _ = client.send(body)
    assert (status, list(document)) == (expected, ["error"])
    assert re.search(pattern, document["error"]), document
    assert "secret" not in document["error"]
    assert lives(client)


@pytest.mark.parametrize(
    ("method", "path", "headers", "expected"),
    [
        ("GET", "/translate", {}, 405),
        ("OPTIONS", "/translate", {"Origin": "http://elsewhere.example"}, 405),
        ("POST", "/translate", {"Content_Type": "text/plain"}, 400),
        ("POST", "/translate", {"Host": "elsewhere.example"}, 400),
        ("GET", "/", {"Host": "127.0.0.1.elsewhere.example:80"}, 400),
        ("GET", "/health", {"Host": "[::1]:80"}, 200),
        ("GET", "/page/page.js", {}, 200),
        ("GET", "/page/../app.py", {}, 404),
        ("POST", "/explain", {}, 501),
    ],
)
def test_methods_paths_and_headers(
    method: str, path: str, headers: dict[str, str], expected: int, client: Client
) -> None:
    status, document, given = client.send(b'{"line": "a"}', method=method, path=path, **headers)
    assert status == expected
    assert status < 400 or list(document) == ["error"]
    assert "access-control-allow-origin" not in given
    assert given["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "sent",
    [b"\x00\xff\r\n\r\n", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
     b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{"],
    ids=["bytes", "long header", "half a body"],
)  # fmt: skip
def test_what_is_no_request_harms_nobody(sent: bytes, client: Client) -> None:
    with socket.create_connection(("127.0.0.1", client.port), timeout=PATIENCE) as connection, suppress(OSError):
        connection.sendall(sent)
    assert lives(client)


def test_what_is_no_request_is_answered_as_json(client: Client) -> None:
    with socket.create_connection(("127.0.0.1", client.port), timeout=PATIENCE) as connection:
        connection.sendall(b"\x00\xff\r\n\r\n")
        head, _, body = b"".join(iter(lambda: connection.recv(4096), b"")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert list(json.loads(body)) == ["error"]


def test_too_many_requests_are_answered_as_json(monkeypatch: pytest.MonkeyPatch, slow: FakeTranslator) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 16)
    body = b'{"lines": ["a"]}'
    header = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with served(slow) as client, ExitStack() as opened:
        status = 200
        try:
            while status == 200:  # a connection whose request has not been read yet makes room for another one
                waiting = opened.enter_context(socket.create_connection(("127.0.0.1", client.port), timeout=PATIENCE))
                waiting.sendall(header + b"Content-Length: %d\r\n\r\n" % len(body) + body)
                status, document, _ = client.send(method="GET", path="/health")
        finally:
            slow.go.set()
        assert (status, list(document)) == (503, ["error"])
        assert waiting.recv(12) == b"HTTP/1.1 200"


@pytest.mark.parametrize("before", [b"", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"], ids=["first", "second"])
def test_a_header_has_its_time(before: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often a part of it comes, also after an answer on the same connection."""
    monkeypatch.setattr(connections, "HEADER_TIMEOUT", 0.5)
    with served(FakeTranslator()) as client:
        with socket.create_connection(("127.0.0.1", client.port), timeout=PATIENCE) as connection:
            connection.sendall(before + b"GET /health HTTP/1.1\r\nHost: loc")
            started = time.monotonic()
            with suppress(ConnectionError):
                while time.monotonic() < started + PATIENCE:
                    time.sleep(0.1)
                    connection.sendall(b"a")
            assert time.monotonic() < started + PATIENCE
        assert lives(client)


def test_connections_without_a_request_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 8)
    with served(FakeTranslator()) as client, ExitStack() as opened:
        halves = []
        for _ in range(30):
            half = opened.enter_context(socket.create_connection(("127.0.0.1", client.port), timeout=PATIENCE))
            with suppress(ConnectionError):
                half.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-")
            halves.append(half)
        assert lives(client)
        for half in halves[:20]:
            with suppress(ConnectionError):
                assert half.recv(1) == b""


# The queue.


def submitted(client: Client, pool: ThreadPoolExecutor, waiting: int, *lines: str, **keys: Any) -> Future[Any]:
    """Send lines, and return once so many are waiting."""
    answer = pool.submit(client.translate, *lines, **keys)
    client.wait_for(lambda: client.metric("queue_lines") == waiting)
    return answer


def texts(answer: Future[Any]) -> list[str]:
    return [found["text"] for found in answer.result(PATIENCE)[1]["translations"]]


def test_what_waits_is_searched_together_and_a_short_request_before_the_rest_of_a_long_one(
    slow: FakeTranslator,
) -> None:
    with served(slow, batch_lines=4) as client, ThreadPoolExecutor(9) as pool:
        first = pool.submit(client.translate, "a")
        assert slow.begun.acquire(timeout=PATIENCE)
        long = submitted(client, pool, 10, *"0123456789")
        other = submitted(client, pool, 11, "ab", target_lang="xx")
        slow.go.set()
        slow.go.clear()
        assert slow.begun.acquire(timeout=PATIENCE)
        short = submitted(client, pool, 9, "cd", "ef")
        slow.go.set()
        assert (texts(first), texts(long), texts(other), texts(short)) == (
            ["a"], list("0123456789"), ["ba"], ["dc", "fe"]
        )  # fmt: skip
    assert slow.searches == [("a",), tuple("0123"), ("ab",), ("cd", "ef", "4", "5"), tuple("6789")]


def test_long_lines_are_searched_few_at_a_time() -> None:
    translator = FakeTranslator()
    lines = [256 * "a", "b", 256 * "c"]
    with served(translator, batch_lines=3) as client:
        client.translate(*lines)
    assert translator.searches == [tuple(lines[:2]), tuple(lines[2:])]


def test_lines_wait_for_others_and_one_that_fails_fails_its_own_request_only() -> None:
    translator = FakeTranslator()
    with served(translator, batch_lines=3, wait_ms=10_000.0) as client, ThreadPoolExecutor(3) as pool:
        good = submitted(client, pool, 1, "ab")
        bad = submitted(client, pool, 2, "poison")
        last = pool.submit(client.translate, "cd")
        assert (texts(good), bad.result(PATIENCE)[0], texts(last)) == (["ba"], 500, ["dc"])
    assert translator.searches == [("ab", "poison", "cd"), ("ab",), ("poison",), ("cd",)]


def test_a_full_queue_is_503_and_then_goes_on(slow: FakeTranslator) -> None:
    with served(slow, **LIMITS) as client, ThreadPoolExecutor(2) as pool:
        first = pool.submit(client.translate, "a")
        assert slow.begun.acquire(timeout=PATIENCE)
        second = submitted(client, pool, 5, *"bcdef")
        status, document, headers = client.translate("g", "h")
        assert (status, list(document)) == (503, ["error"])
        assert int(headers["retry-after"]) >= 1
        slow.go.set()
        assert (texts(first), texts(second)) == (["a"], list("bcdef"))
        assert lives(client)


@pytest.mark.parametrize("stream", [False, True])
def test_lines_of_a_client_that_left_are_not_searched(stream: bool, slow: FakeTranslator) -> None:
    with served(slow, **LIMITS) as client, ThreadPoolExecutor(1) as pool:
        first = pool.submit(client.translate, "a")
        assert slow.begun.acquire(timeout=PATIENCE)
        connection = client.connect()
        body = json.dumps({"lines": ["b", "c"], "stream": stream})
        connection.request("POST", "/translate", body, {"Content-Type": "application/json"})
        client.wait_for(lambda: client.metric("queue_lines") == 2)
        connection.close()
        client.wait_for(lambda: client.metric("queue_lines") == 0)
        slow.go.set()
        assert first.result(PATIENCE)[0] == 200
        assert lives(client)
        assert client.metric('requests_total{status="499"}') == 1
    assert slow.searches == [("a",), ("abc",)]


def test_a_request_has_its_time_and_a_stream_for_each_part(slow: FakeTranslator) -> None:
    slow.pause = 0.25
    slow.go.set()
    with served(slow, timeout=0.6, batch_lines=1) as client:
        status, document, _ = client.translate(*"abcd")
        assert (status, list(document)) == (504, ["error"])
        client.wait_for(lambda: client.metric("queue_lines") == 0)
        status, text, _ = client.translate(*"abcd", stream=True)
        assert (status, [json.loads(line)["text"] for line in text.splitlines()]) == (200, list("abcd"))
        with socket.create_connection(("127.0.0.1", client.port), timeout=PATIENCE) as half:
            half.sendall(b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                         b"Content-Length: 99\r\n\r\n{")  # fmt: skip
            assert half.recv(99).startswith(b"HTTP/1.1 504 ")


def test_a_stream_that_is_not_read_is_ended() -> None:
    """The answer is more than the buffers of a connection hold."""
    with served(FakeTranslator(), max_body=1 << 24, max_chars=100_000, timeout=2.0) as client:
        connection = client.connect()
        body = json.dumps({"lines": ["x" * 100_000] * 100, "nbest": 3, "stream": True})
        connection.request("POST", "/translate", body, {"Content-Type": "application/json"})
        client.wait_for(lambda: client.metric("request_seconds_count") == 1)
        assert client.metric("request_seconds_sum") >= 2
        connection.close()


def test_a_server_that_is_to_end_finishes_what_it_has_begun(slow: FakeTranslator) -> None:
    with ThreadPoolExecutor(1) as pool:
        with served(slow) as client:
            answer = pool.submit(client.translate, "ab")
            assert slow.begun.acquire(timeout=PATIENCE)
            threading.Timer(0.3, slow.go.set).start()
        assert texts(answer) == ["ba"]


# A real model.


def translator_of(kind: str, data: str, folder: Path, **others: Any) -> LoadedTranslator:
    options = TranslatorOptions(beam=BeamOptions(3, 0.6, 10), nbest=3, **others)
    return LoadedTranslator(checkpoint_of(folder, kind), data=data, options=options)


def test_many_clients_get_what_the_translator_gives(data: str, tmp_path: Path) -> None:
    translator = translator_of("depthwise_lstm_transformer", data, tmp_path)
    draw = random.Random(7)
    lines = [" ".join(f"w{draw.randrange(8)}" for _ in range(draw.randint(0, 9))) for _ in range(1000)]
    expected = translator.translations(lines)
    assert len({found.text for found in expected}) > 5
    pieces = []
    while lines:
        size = draw.choice([1, 2, 30])
        pieces.append(lines[:size])
        del lines[:size]
    with served(translator, wait_ms=5.0) as client, ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda piece: client.translate(*piece), pieces))
        batches = client.metric("batches_total")
    found = [one for _, document, _ in answers for one in document["translations"]]
    assert [one["text"] for one in found] == [one.text for one in expected]
    assert [one["score"] for one in found] == pytest.approx([one.hypotheses[0].score for one in expected], abs=1e-4)
    assert batches < len(pieces) / 2


@pytest.mark.parametrize(
    ("kind", "part"),
    [("depthwise_lstm_transformer", "gates"), ("mute_transformer", "units"), ("transformer", None)],
)
def test_explanations(kind: str, part: str | None, data: str, tmp_path: Path) -> None:
    translator = translator_of(kind, data, tmp_path)
    with served(translator, explain=partial(explain, translator)) as client:
        _, answer, _ = client.translate("w1 w2 w3", nbest=3)
        body = json.dumps({"line": "w1 w2 w3", "rank": 2}).encode()
        status, document, _ = client.send(body, path="/explain")
        assert status == 200
        assert document["source"] == ["w1", "w2", "w3", "</s>"]
        assert document["text"] == answer["translations"][0]["nbest"][2]["text"]
        assert [len(row) for row in document["attention"]] == [4] * len(document["target"])
        assert [sum(row) for row in document["attention"]] == pytest.approx([1.0] * len(document["target"]), abs=1e-3)
        assert {"gates", "units"} & set(document) == ({part} if part else set())
        if part == "units":
            coefficients = [layer.coefficients().tolist() for layer in translator.models[0].encoder.layers]
            assert document["units"] == [pytest.approx(layer, abs=1e-3) for layer in coefficients]
        if part == "gates":
            assert all(0 < gates["forget"] < 1 for side in ("encoder", "decoder") for gates in document["gates"][side])
        for wrong in (b'{"line": " "}', b'{"line": "w1", "rank": 3}', b"{}"):
            assert client.send(wrong, path="/explain")[0] == 400
