"""Batches lines of many requests, and searches them in one thread that owns the translator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from starlette.exceptions import HTTPException

from fairseq_depthwise.serving.server_options import ServerOptions

_AFTER = 0.05  # the next search waits for more lines for this share of the last search's duration
_CHARACTERS = 128  # a line of more characters counts as several: splitting a long word into subwords takes very long
_LOOK = 0.5  # seconds between checks that a waiting client is still there


@dataclass(eq=False)
class _Job:
    """A request: its lines that wait for a search, and ``parts``, the results of the others."""

    key: Hashable
    lines: Sequence[Any]
    parts: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)
    arrived: float = field(default_factory=monotonic)


class Batcher:
    """The queue: calls ``search(key, lines)`` with up to ``batch_lines`` lines of jobs with equal keys.

    An incomplete batch waits for more lines until ``wait_ms`` after the arrival of its oldest. After a search it also
    waits for clients that were answered and may send their next lines: ``wait_ms``, or a twentieth of the search's
    duration if that is longer.
    """

    def __init__(self, search: Callable[[Any, Sequence[Any]], Sequence[Any]], options: ServerOptions) -> None:
        self._search, self._options, self._wait = search, options, options.wait_ms / 1000
        self._jobs: list[_Job] = []
        self._changed = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "translator")

    @property
    def waiting(self) -> int:
        """The number of lines in the queue."""
        return sum(len(job.lines) for job in self._jobs)

    async def results(
        self, key: Hashable, lines: Sequence[Any], is_gone: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[Sequence[Any]]:
        """Yield results of lines in order, as searches end, or raise a search's exception; 503 if too many wait."""
        if (waiting := self.waiting) + len(lines) > self._options.queue_lines:
            sentence = f"{waiting:,} lines wait, of at most {self._options.queue_lines:,}; try again later"
            raise HTTPException(503, sentence, {"Retry-After": "2"})
        job = _Job(key, lines)
        self._jobs.append(job)
        self._changed.set()
        done = 0
        try:
            while done < len(lines):
                try:
                    # Wake up regularly, because nothing else tells this task that its client has left.
                    part = await asyncio.wait_for(job.parts.get(), _LOOK)
                except asyncio.TimeoutError:
                    if await is_gone():
                        raise HTTPException(499, "the client left") from None
                    continue
                if isinstance(part, Exception):
                    raise part
                done += len(part)
                yield part
        finally:
            # However this ends, even by a timeout, run() then drops the job.
            job.lines = ()

    async def run(self) -> None:
        """Search what comes until cancelled."""
        begins = 0.0  # no incomplete batch begins earlier, however long its lines have waited
        while True:
            self._changed.clear()
            self._jobs = [job for job in self._jobs if job.lines]
            # 1. The oldest job decides which key is next.
            alike = [job for job in self._jobs if job.key == self._jobs[0].key]
            seconds_to_wait = max(alike[0].arrived + self._wait, begins) - monotonic() if alike else None
            is_full = sum(len(job.lines) for job in alike) >= self._options.batch_lines
            # 2. Wait for the first line or for more lines; a new job ends the wait.
            if seconds_to_wait is None or (seconds_to_wait > 0 and not is_full):
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), seconds_to_wait)
                continue
            # 3. Search.
            batch = self._take_lines(alike)
            started = monotonic()
            await self._search_all(batch)
            begins = monotonic() + (max(self._wait, _AFTER * (monotonic() - started)) if self._wait else 0)
            # Requests that came meanwhile, or have another key, go before the rest of a long one.
            self._jobs.sort(key=batch.__contains__)

    def _take_lines(self, jobs: Sequence[_Job]) -> dict[_Job, Sequence[Any]]:
        """Take the lines of the next batch from jobs in their order, perhaps only a part of the last job's."""
        batch: dict[_Job, Sequence[Any]] = {}
        room: float = self._options.batch_lines
        for job in jobs:
            taken = 0
            while room > 0 and taken < len(job.lines):
                room -= max(1, len(str(job.lines[taken])) / _CHARACTERS)
                taken += 1
            if taken:
                batch[job], job.lines = job.lines[:taken], job.lines[taken:]
        return batch

    async def _search_all(self, batch: dict[_Job, Sequence[Any]]) -> None:
        """Search a batch; if that fails, search each job by itself, so that a line fails only its own request."""
        lines: list[Any] = []
        for of_job in batch.values():
            lines += of_job
        key = next(iter(batch)).key
        try:
            results = await asyncio.get_running_loop().run_in_executor(self._thread, self._search, key, lines)
        except Exception as error:
            for job, of_job in batch.items():
                if len(batch) > 1:
                    await self._search_all({job: of_job})
                else:
                    job.parts.put_nowait(error)
            return
        remaining = iter(results)
        for job, of_job in batch.items():
            job.parts.put_nowait([next(remaining) for _ in of_job])
