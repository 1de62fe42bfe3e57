"""Lines of many requests in one search: order, turns, the bound of the queue, failures."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from fairseq_compat import UserError
from fairseq_depthwise.serving.http.batching import Batcher, Job, QueueFullError, shares

PATIENCE = 30.0


class Search:
    """Doubles lines, one search after another as the test lets them."""

    def __init__(self) -> None:
        self.searches: list[tuple[Any, list[str]]] = []
        self.begun = threading.Semaphore(0)
        self.permits = threading.Semaphore(0)

    def __call__(self, key: Any, lines: Sequence[str]) -> list[str]:
        self.searches.append((key, list(lines)))
        self.begun.release()
        assert self.permits.acquire(timeout=PATIENCE)
        for line in lines:
            if line == "poison":
                raise RuntimeError("poison")
            if line == "language":
                raise UserError("no such language")
        return [line * 2 for line in lines]

    def let_end(self, count: int = 1) -> None:
        """Let so many searches end, the last of which has begun."""
        for _ in range(count):
            self.permits.release()


class Request(Job):
    """A job that collects what is delivered."""

    def __init__(self, *lines: str, key: Any = "a") -> None:
        self.parts: queue.Queue[Any] = queue.Queue()
        super().__init__(key, lines, self.parts.put)

    def results(self) -> list[str]:
        found: list[str] = []
        while len(found) < len(self.lines):
            part = self.parts.get(timeout=PATIENCE)
            if isinstance(part, Exception):
                raise part
            found += part
        return found


@pytest.fixture
def search() -> Search:
    return Search()


@pytest.fixture
def batcher(search: Search) -> Iterator[Batcher]:
    made = Batcher(search, queue_lines=20, batch_lines=4)
    yield made
    search.let_end(100)
    made.close(PATIENCE)
    assert not made.alive


def occupy(batcher: Batcher, search: Search) -> Request:
    """Begin a search, so that what comes next waits."""
    first = Request("first", key="occupied")
    batcher.submit(first)
    assert search.begun.acquire(timeout=PATIENCE)
    return first


def test_what_waits_is_searched_together_and_comes_back_in_order(batcher: Batcher, search: Search) -> None:
    occupy(batcher, search)
    requests = [Request("x"), Request("y", "z"), Request("w", key="b"), Request("v")]
    for request in requests:
        batcher.submit(request)
    assert batcher.waiting == 5
    search.let_end(3)
    assert [request.results() for request in requests] == [["xx"], ["yy", "zz"], ["ww"], ["vv"]]
    assert search.searches[1:] == [("a", ["x", "y", "z", "v"]), ("b", ["w"])]
    batcher.close(PATIENCE)
    assert (batcher.waiting, batcher.batches, batcher.lines) == (0, 3, 6)


def test_a_short_request_does_not_wait_for_a_long_one(batcher: Batcher, search: Search) -> None:
    occupy(batcher, search)
    long = Request(*"0123456789")
    batcher.submit(long)
    other = Request("p", key="b")
    batcher.submit(other)
    search.let_end()
    assert search.begun.acquire(timeout=PATIENCE)  # the first 4 lines of the long one
    short = Request("q")
    batcher.submit(short)
    search.let_end(10)
    assert long.results() == [digit * 2 for digit in "0123456789"]
    assert [lines for _, lines in search.searches[1:]] == [
        ["0", "1", "2", "3"], ["p"], ["4", "5", "6", "q"], ["7", "8", "9"]
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "capacity", "given"),
    [
        ([10], 4, [4]),
        ([10, 1, 10], 9, [4, 1, 4]),
        ([1, 1, 1], 2, [1, 1, 0]),
        ([2, 3], 100, [2, 3]),
        ([5, 5], 3, [2, 1]),
    ],
)
def test_shares(wanted: list[int], capacity: int, given: list[int]) -> None:
    assert shares(wanted, capacity) == given


def test_a_full_queue_refuses_and_goes_on(batcher: Batcher, search: Search) -> None:
    occupy(batcher, search)
    batcher.submit(Request(*"x" * 18))
    with pytest.raises(QueueFullError) as refused:
        batcher.submit(Request("1", "2", "3"))
    assert refused.value.waiting == 18
    assert refused.value.retry_after >= 1
    last = Request("1", "2")
    batcher.submit(last)
    search.let_end(6)
    assert last.results() == ["11", "22"]


def test_what_was_dropped_is_not_searched(batcher: Batcher, search: Search) -> None:
    occupy(batcher, search)
    dropped, staying = Request("x", "y"), Request("z")
    batcher.submit(dropped)
    batcher.submit(staying)
    batcher.drop(dropped)
    batcher.drop(dropped)
    assert batcher.waiting == 1
    search.let_end(2)
    assert staying.results() == ["zz"]
    assert search.searches[1:] == [("a", ["z"])]


@pytest.mark.parametrize(("line", "error"), [("poison", RuntimeError), ("language", UserError)])
def test_a_line_that_fails_fails_its_own_request_only(
    line: str, error: type[Exception], batcher: Batcher, search: Search
) -> None:
    """Errors of the user's too: one of several lines to be explained may be too long."""
    occupy(batcher, search)
    good, bad, last = Request("x"), Request(line, *"yyyy"), Request("z")
    for request in (good, bad, last):
        batcher.submit(request)
    search.let_end(20)
    assert (good.results(), last.results()) == (["xx"], ["zz"])
    with pytest.raises(error, match=line):
        bad.results()
    after = Request("still")
    batcher.submit(after)
    assert after.results() == ["stillstill"]
    assert batcher.waiting == 0


def test_lines_wait_for_others(search: Search) -> None:
    batcher = Batcher(search, queue_lines=20, batch_lines=3, wait=PATIENCE)
    requests = [Request("x"), Request("y"), Request("z")]
    for request in requests:
        batcher.submit(request)
    search.let_end()
    assert [request.results() for request in requests] == [["xx"], ["yy"], ["zz"]]  # full: it does not wait on
    assert search.searches == [("a", ["x", "y", "z"])]
    batcher.wait, batcher._continues = 0.05, 0.0  # it would wait for others after the search, too
    alone = Request("w")
    batcher.submit(alone)
    search.let_end()
    assert alone.results() == ["ww"]
    batcher.close(PATIENCE)
