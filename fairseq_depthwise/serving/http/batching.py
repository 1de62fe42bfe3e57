"""Lines of many requests, searched together by one thread that owns the translator.

Nothing here knows of HTTP: a :class:`Job` has lines and is given their results part by part, in order. Waiting jobs
take turns: the next batch is of the key that has waited longest, and all jobs of that key share its lines, so that
a short request does not wait for the whole of a long one.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from fairseq_compat import UserError

log = logging.getLogger(__name__)

#: Retry-After at most, in seconds.
_LONGEST_RETRY = 60

#: Part of the duration of a search for which the next one waits for more lines.
_AFTER = 0.05

#: How much of the measured speed the newest batch counts for.
_NEWEST = 0.2


class QueueFullError(Exception):
    """More lines are waiting than may.

    Attributes:
        waiting: lines in the queue.
        retry_after: seconds after which half of them are likely to have been searched.
    """

    def __init__(self, waiting: int, retry_after: int) -> None:
        super().__init__(f"{waiting:,} lines are waiting")
        self.waiting, self.retry_after = waiting, retry_after


class Job:
    """The lines of a request.

    Args:
        key: lines of equal keys may be in one batch.
        lines: one at least.
        deliver: called by the searching thread with a list of results, the next ones in order, or with the exception
            that ends the job.
    """

    def __init__(self, key: Hashable, lines: Sequence[str], deliver: Callable[[Any], None]) -> None:
        self.key, self.lines, self.deliver = key, lines, deliver
        self.taken = 0
        self.arrived = 0.0

    @property
    def waiting(self) -> int:
        """Lines that are in no batch yet."""
        return len(self.lines) - self.taken


class Batcher:
    """The queue, and the thread that searches.

    Args:
        search: called in the thread with a key and lines; returns as many results.
        queue_lines: lines that may wait.
        batch_lines: lines of a batch at most.
        wait: seconds that an incomplete batch waits for more lines, from the arrival of its oldest. After a search it
            waits for those, too, who were answered then and are likely to send their next lines now: so long, or a
            twentieth of that search if this is longer. 0 for neither.

    Attributes:
        batches: number of searches that have ended.
        lines: number of lines in them.
        seconds: spent in them.
        waiting: lines in the queue.
    """

    def __init__(
        self,
        search: Callable[[Any, Sequence[str]], Sequence[Any]],
        *,
        queue_lines: int,
        batch_lines: int,
        wait: float = 0.0,
    ) -> None:
        self.queue_lines, self.batch_lines, self.wait = queue_lines, batch_lines, wait
        self.batches = self.lines = self.waiting = 0
        self.seconds = 0.0
        self._search = search
        self._speed = 0.0  # lines a second
        self._continues = 0.0  # when a batch begins, even of lines that have waited long enough
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        # A daemon: a search that does not end may not keep the process from ending.
        self._thread = threading.Thread(target=self._work, name="translator", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Queue a job.

        Raises:
            QueueFullError: with its lines more would be waiting than may.
        """
        with self._changed:
            if self.waiting + job.waiting > self.queue_lines:
                half = self.waiting / 2 / self._speed if self._speed else 1.0
                raise QueueFullError(self.waiting, max(1, min(_LONGEST_RETRY, math.ceil(half))))
            job.arrived = time.monotonic()
            self._jobs.append(job)
            self.waiting += job.waiting
            self._changed.notify()

    def drop(self, job: Job) -> None:
        """Take a job's waiting lines out of the queue; those in a search are searched for nothing."""
        with self._changed:
            if job in self._jobs:
                self._jobs.remove(job)
                self.waiting -= job.waiting

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def close(self, seconds: float) -> None:
        """End the thread after the search that it is in, and wait for that so long at most."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(seconds)

    def _work(self) -> None:
        while batch := self._next():
            started = time.monotonic()
            count = sum(len(lines) for _, lines in batch)
            self._search_all(batch)
            ended = time.monotonic()
            seconds = ended - started
            self._continues = ended + max(self.wait, _AFTER * seconds) if self.wait else ended
            with self._changed:
                self.batches += 1
                self.lines += count
                self.seconds += seconds
                speed = count / max(seconds, 1e-6)
                self._speed += (speed - self._speed) * (_NEWEST if self._speed else 1.0)

    def _next(self) -> list[tuple[Job, Sequence[str]]]:
        """Wait for lines, and take those of the next batch out of the queue; nothing at the end."""
        with self._changed:
            while not self._closed:
                if not self._jobs:
                    self._changed.wait()
                    continue
                first = self._jobs[0]
                alike = [job for job in self._jobs if job.key == first.key]
                left = max(first.arrived + self.wait, self._continues) - time.monotonic()
                if left > 0 and sum(job.waiting for job in alike) < self.batch_lines:
                    self._changed.wait(left)
                    continue
                return self._take(alike)
            return []

    def _take(self, alike: list[Job]) -> list[tuple[Job, Sequence[str]]]:
        counts = shares([job.waiting for job in alike], self.batch_lines)
        batch = []
        for job, count in zip(alike, counts, strict=True):
            if not count:
                continue  # so many jobs that it has to wait for the next batch, before those that were in this one
            batch.append((job, job.lines[job.taken : job.taken + count]))
            job.taken += count
            self.waiting -= count
            self._jobs.remove(job)
            if job.waiting:
                self._jobs.append(job)
        return batch

    def _search_all(self, batch: list[tuple[Job, Sequence[str]]]) -> None:
        key = batch[0][0].key
        lines = [line for _, of_job in batch for line in of_job]
        try:
            results = self._search(key, lines)
            if len(results) != len(lines):
                raise RuntimeError(f"{len(lines)} lines have {len(results)} translations")
        except Exception as error:
            if len(batch) > 1:
                log.warning("a batch of %d requests failed; each is searched by itself", len(batch))
                for part in batch:
                    self._search_all([part])
                return
            if not isinstance(error, UserError):
                log.exception("the search failed")
            ((job, _),) = batch
            self.drop(job)
            job.deliver(error)
            return
        start = 0
        for job, of_job in batch:
            job.deliver(list(results[start : start + len(of_job)]))
            start += len(of_job)


def shares(wanted: Sequence[int], capacity: int) -> list[int]:
    """Return how much of ``capacity`` each gets: as much as all others, unless it wants less.

    Where there is less of it than there are claimants, the first ones get 1.
    """
    given = [0] * len(wanted)
    while capacity and (hungry := [index for index, want in enumerate(wanted) if want > given[index]]):
        share = max(1, capacity // len(hungry))
        for index in hungry[:capacity]:
            more = min(share, wanted[index] - given[index])
            given[index] += more
            capacity -= more
    return given
