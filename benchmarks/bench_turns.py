"""Processes of several rows at work by turns: one works, the others wait.

However the machine changes meanwhile, it changes for all of them: the first row's and the last row's work of a round
lie next to each other.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench_rows import Case
from bench_worker import Job

PROGRAM = Path(__file__).with_name("bench_worker.py")


class RowFailedError(Exception):
    """A row cannot be measured; says why."""


class Worker:
    """A process that does the work of one row.

    Args:
        job: what it is for.

    Attributes:
        start_up: seconds from starting Python to a ready model.
        parameters: of the model.
        unused: parameters on top of these that stock fairseq never reads.

    Raises:
        RowFailedError: the model could not be built.
    """

    def __init__(self, job: Job) -> None:
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115  # close() does
        begin = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, encoding="utf-8",
        )  # fmt: skip
        try:
            ready = self.ask(asdict(job))
        except BaseException:
            self.close()
            raise
        self.start_up = time.perf_counter() - begin
        self.parameters = int(ready["parameters"])
        self.unused = int(ready["unused"])

    def ask(self, message: Any) -> dict[str, Any]:
        """Its answer.

        Raises:
            RowFailedError: it ended, or answered with an error.
        """
        assert self._process.stdin
        assert self._process.stdout
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise RowFailedError(self._how_it_ended())
        answer = json.loads(line)
        if "error" in answer:
            raise RowFailedError(answer["error"])
        return answer

    def _how_it_ended(self) -> str:
        code = self._process.wait()
        if code == -signal.SIGKILL:
            return "its process was killed, as the system does where memory runs out"
        self._errors.seek(0)
        last = (self._errors.read().strip() or "it said nothing").splitlines()[-1]
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        return f"its process {how}: {last[:300]}"

    def close(self) -> None:
        """End the process, at once if it is in the middle of something."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def take_turns(
    workers: dict[str, Worker],
    case: Case,
    *,
    rounds: int,
    warm_up: int,
    failed: Callable[[str, str], None],
    say: Callable[[int, Mapping[str, float]], None],
) -> dict[str, dict[str, list[float]]]:
    """The answers of each row in the rounds that count: name -> ``seconds``, ``amount`` and ``steps`` of each.

    Args:
        workers: name of the row -> its process; the first one's turn comes first in the first round, the second one's
            in the second, and so on. A row that fails is closed and taken out.
        case: what each does in its turn.
        rounds: rounds that count.
        warm_up: rounds before them, numbered below 0.
        failed: told the name of a row and why it failed.
        say: told the number of each round and its seconds.
    """
    answers: dict[str, dict[str, list[float]]] = {}
    for number in range(-warm_up, rounds):
        seconds: dict[str, float] = {}
        names = list(workers)
        shift = number % len(names) if names else 0
        for name in names[shift:] + names[:shift]:
            try:
                answer = workers[name].ask(case.as_numbers())
            except RowFailedError as error:
                workers.pop(name).close()
                answers.pop(name, None)
                failed(name, str(error))
                continue
            seconds[name] = answer["seconds"]
            if number >= 0:
                kept = answers.setdefault(name, {"seconds": [], "amount": [], "steps": []})
                for what, values in kept.items():
                    values.append(answer[what])
        say(number, seconds)
    return {name: answers[name] for name in workers if name in answers}
