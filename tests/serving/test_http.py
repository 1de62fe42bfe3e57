"""The server over real connections: answers, limits, wrong requests, clients that leave, and many at once."""

from __future__ import annotations

import json
import random
import re
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from multilingual_checkpoints import multilingual_checkpoint, multilingual_data
from probe_checkpoints import checkpoint_of
from served import PATIENCE, Client, FakeTranslator, damaged_body, served

from fairseq_depthwise.analysis.explained_sentence import explain
from fairseq_depthwise.serving.beam_search import BeamOptions
from fairseq_depthwise.serving.http import connections
from fairseq_depthwise.serving.http.messages import Limits
from fairseq_depthwise.serving.loaded_translator import LoadedTranslator, TranslatorOptions

pytestmark = pytest.mark.slow

LIMITS = Limits(max_body=2000, max_lines=5, max_chars=40, queue_lines=6, most_nbest=3)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A server that only fast requests are sent to."""
    with served(FakeTranslator(), LIMITS) as made:
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
            "POST", "/translate", json.dumps({"lines": ["ab", "cd", "ef"], "stream": True}),
            {"Content-Type": "application/json"},
        )  # fmt: skip
        answer = connection.getresponse()
        assert answer.getheader("content-type") == "application/x-ndjson"
        first = [json.loads(answer.readline()) for _ in range(2)]
        slow.go.set()
        assert [found["text"] for found in first] == ["ba", "dc"]
        assert json.loads(answer.read()) == {"text": "fe", "score": -1.5}
        connection.close()


def test_a_stream_that_fails_ends_with_an_error(slow: FakeTranslator) -> None:
    slow.go.set()
    with served(slow, batch_lines=2) as client:
        status, text, _ = client.translate("ab", "cd", "poison", stream=True)
        assert status == 200
        assert [list(json.loads(line)) for line in text.splitlines()] == [
            ["text", "score"],
            ["text", "score"],
            ["error"],
        ]
        assert client.translate("poison", stream=True)[0] == 500


def test_health_metrics_and_description(client: Client) -> None:
    status, document, _ = client.send(method="GET", path="/health")
    assert (status, document["status"], document["target_lang"]) == (200, "ok", "tgt")
    before = client.metric('requests_total{status="200"}'), client.metric("request_seconds_count")
    client.translate("ab", "cd")
    after = client.metric('requests_total{status="200"}'), client.metric("request_seconds_count")
    # Each look at a metric is a request, too.
    assert (after[0] - before[0], after[1] - before[1]) == (3, 1)
    assert client.metric('request_seconds_bucket{le="+Inf"}') == client.metric("request_seconds_count")
    assert client.metric("lines_total") >= 2
    status, document, _ = client.send(method="GET", path="/openapi.json")
    assert document["openapi"].startswith("3.1")
    schemas = document["components"]["schemas"]
    assert schemas["TranslateRequest"]["properties"]["lines"]["maxItems"] == LIMITS.max_lines
    references = set(json.dumps(document).split('"#/components/schemas/')[1:])
    assert {reference.split('"')[0] for reference in references} <= set(schemas)


# What is refused.

WRONG: dict[str, tuple[bytes, int, str]] = {
    "empty": (b"", 400, "empty"),
    "blank": (b" \n", 400, "empty"),
    "not UTF-8": (b'{"lines": ["\xff"]}', 400, "UTF-8 at byte 12"),
    "not JSON": (b"{lines: 1}", 400, "JSON"),
    "half": (b'{"lines": ["a"', 400, "JSON"),
    "NaN": (b'{"lines": ["a"], "nbest": NaN}', 400, "NaN"),
    "infinity": (b'{"lines": ["a"], "nbest": 1e999}', 400, "nbest is inf"),
    "nested": (b"[" * 1900, 400, "nest|JSON"),
    "a list": (b'["a"]', 400, "a list of 1"),
    "a number": (b"17", 400, "17"),
    "no lines": (b'{"nbest": 1}', 400, "lines is missing"),
    "lines is a string": (b'{"lines": "abc"}', 400, 'lines is "abc"'),
    "lines is null": (b'{"lines": null}', 400, "lines is null"),
    "lines is empty": (b'{"lines": []}', 400, "lines is empty"),
    "a line is a number": (b'{"lines": ["a", 7]}', 400, r"lines\[1\] is 7"),
    "a line is an object": (b'{"lines": [{}]}', 400, r"lines\[0\] is an object"),
    "a surrogate": (b'{"lines": ["a\\ud800"]}', 400, r"lines\[0\] .*ud800"),
    "a line break": (b'{"lines": ["a\\nb"]}', 400, r"lines\[0\] .* character 1"),
    "too many lines": (json.dumps({"lines": ["a"] * 6}).encode(), 413, "6 lines; at most 5"),
    "too many characters": (json.dumps({"lines": ["a" * 41]}).encode(), 413, r"lines\[0\] has 41 .* 40"),
    "too many bytes": (b" " * 2001, 413, "2,000 bytes"),
    "far too many bytes": (b" " * 500_000, 413, "2,000 bytes"),
    "unknown key": (b'{"lines": ["a"], "beam": 5}', 400, '"beam"'),
    "nbest 0": (b'{"lines": ["a"], "nbest": 0}', 400, "nbest is 0.* 1 to 3"),
    "nbest 4": (b'{"lines": ["a"], "nbest": 4}', 400, "nbest is 4.* 1 to 3"),
    "nbest true": (b'{"lines": ["a"], "nbest": true}', 400, "nbest is true"),
    "nbest huge": (b'{"lines": ["a"], "nbest": 1' + b"0" * 400 + b"}", 400, "nbest is 1000"),
    "stream": (b'{"lines": ["a"], "stream": "yes"}', 400, 'stream is "yes"'),
    "language": (b'{"lines": ["a"], "target_lang": "zz"}', 400, "target_lang zz .* tgt, xx"),
    "language is a number": (b'{"lines": ["a"], "source_lang": 3}', 400, "source_lang is 3"),
    "language is long": (b'{"lines": ["a"], "source_lang": "' + b"s" * 99 + b'"}', 400, "source_lang is"),
    "alignment": (b'{"lines": ["a"], "alignment": true}', 400, "alignment is true"),
    "token scores": (b'{"lines": ["a"], "token_scores": true}', 400, "token_scores is true"),
    "fails": (b'{"lines": ["poison"]}', 500, "log"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_bodies_are_refused_with_a_sentence(case: str, client: Client) -> None:
    body, expected, pattern = WRONG[case]
    status, document, _ = client.send(body)
    assert status == expected
    assert list(document) == ["error"]
    assert re.search(pattern, document["error"]), document
    assert "Traceback" not in document["error"]
    assert "secret" not in document["error"]
    assert lives(client)


@pytest.mark.parametrize(
    ("method", "path", "headers", "expected"),
    [
        ("GET", "/translate", {}, 405),
        ("PUT", "/translate", {}, 405),
        ("POST", "/health", {}, 405),
        ("OPTIONS", "/translate", {"Origin": "http://elsewhere.example"}, 405),
        ("GET", "/translate/", {}, 404),
        ("GET", "/%2e%2e/setup.py", {}, 404),
        ("POST", "/translate", {"Content_Type": "text/plain"}, 415),
        ("POST", "/translate", {"Content_Type": "application/json; charset=latin-1"}, 415),
        ("POST", "/translate", {"Host": "elsewhere.example"}, 400),
        ("GET", "/", {"Host": "127.0.0.1.elsewhere.example:80"}, 400),
        ("POST", "/explain", {}, 501),
    ],
)
def test_wrong_methods_paths_and_headers(
    method: str, path: str, headers: dict[str, str], expected: int, client: Client
) -> None:
    status, document, given = client.send(b'{"line": "a"}', method=method, path=path, **headers)
    assert (status, list(document)) == (expected, ["error"])
    assert "access-control-allow-origin" not in given
    assert given["x-content-type-options"] == "nosniff"
    assert lives(client)


def test_hosts(client: Client) -> None:
    for host in ("localhost", "LOCALHOST:80", "127.0.0.1", "[::1]:80"):
        assert client.send(method="GET", path="/health", Host=host)[0] == 200
    with served(FakeTranslator(), hosts=None) as other:
        assert other.send(method="GET", path="/health", Host="elsewhere.example")[0] == 200


def test_random_bodies(client: Client) -> None:
    draw = random.Random(3)
    good = b'{"lines": ["ab", "\xc3\xa9"], "nbest": 2, "target_lang": "xx", "stream": false}'
    for _ in range(200):
        assert client.send(damaged_body(good, draw))[0] in (200, 400, 413)
    assert lives(client)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x00\xff\r\n\r\n", 400),
        (b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n", 400),
        (
            b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
        ),
        (b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 1_000_000 + b"\r\n\r\n", 431),
        (b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{", None),
    ],
)
def test_what_is_no_http_is_answered_and_ends_the_connection(sent: bytes, status: int | None, client: Client) -> None:
    with socket.create_connection(("127.0.0.1", client.port), timeout=PATIENCE) as connection:
        connection.sendall(sent)
        if status is not None:  # else the client leaves
            answer = b"".join(iter(partial(connection.recv, 65536), b""))
            assert answer.startswith(b"HTTP/1.1 %d " % status)
            assert list(json.loads(answer.partition(b"\r\n\r\n")[2])) == ["error"]
    assert lives(client)


def test_connections_without_a_request_make_room_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 8)
    monkeypatch.setattr(connections, "HEADER_SECONDS", 1.0)
    with served(FakeTranslator()) as client, ExitStack() as opened:
        halves = []
        for _ in range(30):
            half = opened.enter_context(socket.create_connection(("127.0.0.1", client.port), timeout=PATIENCE))
            with suppress(ConnectionError):
                half.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-")
            halves.append(half)
        assert lives(client)
        for half in halves:
            with suppress(ConnectionError):
                assert half.recv(1) == b""


def test_a_failure_is_logged_once_a_while(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(connections, "BETWEEN_RECORDS", 0.3)
    with served(FakeTranslator()) as client:
        end, requests = monotonic() + 0.7, 0
        while monotonic() < end or requests < 20:
            with socket.create_connection(("127.0.0.1", client.port), timeout=PATIENCE) as connection:
                connection.sendall(b"\x00\r\n\r\n")
                connection.recv(9)
            requests += 1
        seconds = monotonic() - end + 0.7
    assert 1 <= len(caplog.records) <= 1 + seconds / 0.3


# The queue.


def test_a_full_queue_is_503_and_then_goes_on(slow: FakeTranslator) -> None:
    with served(slow, LIMITS) as client, ThreadPoolExecutor(2) as pool:
        first = pool.submit(client.translate, "a")
        assert slow.begun.acquire(timeout=PATIENCE)
        second = pool.submit(client.translate, *"bcdef")
        client.wait_for(lambda: client.metric("queue_lines") == 5)
        status, document, headers = client.translate("g", "h")
        assert status == 503
        assert int(headers["retry-after"]) >= 1
        assert "5 are waiting; at most 6" in document["error"]
        slow.go.set()
        assert (first.result(PATIENCE)[0], second.result(PATIENCE)[0]) == (200, 200)
        assert lives(client)


@pytest.mark.parametrize("stream", [False, True])
def test_lines_of_a_client_that_left_are_not_searched(stream: bool, slow: FakeTranslator) -> None:
    with served(slow, LIMITS) as client, ThreadPoolExecutor(1) as pool:
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


def test_a_request_that_takes_too_long_is_504(slow: FakeTranslator) -> None:
    with served(slow, Limits(timeout=0.2)) as client:
        status, document, _ = client.translate("a")
        assert status == 504
        assert "0.2 s" in document["error"]
        slow.go.set()
        client.wait_for(lambda: lives(client))


def test_a_stream_has_the_time_for_each_of_its_parts(slow: FakeTranslator) -> None:
    slow.pause = 0.25
    slow.go.set()
    with served(slow, Limits(timeout=0.6), batch_lines=1) as client:
        assert client.translate(*"abcd")[0] == 504
        status, text, _ = client.translate(*"abcd", stream=True)
        assert (status, [json.loads(line)["text"] for line in text.splitlines()]) == (200, list("abcd"))


def test_a_stream_that_is_not_read_is_ended() -> None:
    """The answer is more than the buffers of a connection hold."""
    limits = Limits(max_body=1 << 24, max_chars=100_000, timeout=2.0, most_nbest=3)
    with served(FakeTranslator(), limits) as client:
        connection = client.connect()
        body = json.dumps({"lines": ["x" * 100_000] * 100, "nbest": 3, "stream": True})
        connection.request("POST", "/translate", body, {"Content-Type": "application/json"})
        client.wait_for(lambda: client.metric("request_seconds_count") == 1)
        assert client.metric("request_seconds_sum") >= 2
        connection.close()


def test_a_server_that_is_to_end_finishes_what_it_has_begun(slow: FakeTranslator) -> None:
    answers: list[Any] = []
    with served(slow) as client:
        thread = threading.Thread(target=lambda: answers.append(client.translate("ab")))
        thread.start()
        assert slow.begun.acquire(timeout=PATIENCE)
        threading.Timer(0.3, slow.go.set).start()
    thread.join(PATIENCE)
    assert [(status, document["translations"][0]["text"]) for status, document, _ in answers] == [(200, "ba")]


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
    with served(translator, wait=0.005) as client, ThreadPoolExecutor(32) as pool:
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
        for wrong, name in ((b'{"line": " "}', "line"), (b'{"line": "w1", "rank": 3}', "rank"), (b"{}", "line")):
            status, document, _ = client.send(wrong, path="/explain")
            assert (status, document["error"].split()[0]) == (400, name)


def test_languages_of_a_request(tmp_path: Path) -> None:
    path, data = multilingual_checkpoint(tmp_path, "--encoder-langtok", "tgt"), multilingual_data(tmp_path / "bin")
    options = TranslatorOptions(beam=BeamOptions(3, 0.6, 10), nbest=3)
    translator = LoadedTranslator(path, data=data, source_lang="en", target_lang="l0", options=options)
    with (
        served(translator, explain=partial(explain, translator)) as client,
        ThreadPoolExecutor(8) as pool,
    ):
        asked = [*3 * ["l0", "l1"], None]
        answers = list(pool.map(lambda language: client.translate("w1 w2 w3", target_lang=language), asked))
        for language, (status, document, _) in zip(asked, answers, strict=True):
            (expected,) = translator.translations(["w1 w2 w3"], target_lang=language)
            assert status == 200
            assert document["translations"][0]["score"] == pytest.approx(expected.hypotheses[0].score, abs=1e-4)
        assert answers[0][1] != answers[1][1]
        body = {"line": "w1", "target_lang": "l1"}
        assert client.send(json.dumps(body).encode(), path="/explain")[1]["source"] == ["__l1__", "w1", "</s>"]
        body["target_lang"] = "zz"
        for status, document, _ in (
            client.translate("w1", target_lang="zz"), client.send(json.dumps(body).encode(), path="/explain")
        ):  # fmt: skip
            assert status == 400
            assert document["error"].startswith("target_lang zz ")
