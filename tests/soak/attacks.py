"""What an attack is, and what it can end in."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from forked_python import ForkedPython

#: Seconds after which a command counts as hanging.
PATIENCE = 120.0


class Outcome(str, Enum):
    """How one attack ended; the first three are as promised."""

    EQUAL = "goes on as if nothing had been"
    REFUSED = "refused in a sentence"
    HARMLESS = "without effect"
    DIFFERENT = "another result"
    LOST = "lost a file"
    EXECUTED = "ran code"
    SURPRISED = "no sentence"
    HUNG = "hung"

    @property
    def is_promised(self) -> bool:
        return self in (Outcome.EQUAL, Outcome.REFUSED, Outcome.HARMLESS)


@dataclass(frozen=True)
class Finding:
    """What came of one attack.

    Attributes:
        kind: of the attack, within its group.
        outcome: of it.
        detail: for a person who wants to see it again.
    """

    kind: str
    outcome: Outcome
    detail: str = ""


@dataclass
class Place:
    """Where an attack works.

    Attributes:
        folder: its own.
        chance: of everything that is random in it.
        python: starts commands at once.
        made: what an attack has made once, by name.
    """

    folder: Path
    chance: random.Random
    python: ForkedPython
    made: dict[str, Any] = field(default_factory=dict)

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return what ``make`` returned the first time."""
        if name not in self.made:
            self.made[name] = make()
        return self.made[name]

    def new_folder(self, name: str) -> Path:
        """Return an empty folder that nothing else uses."""
        number = self.made[f"{name}, folders"] = self.made.get(f"{name}, folders", 0) + 1
        folder = self.folder / f"{name}-{number}"
        folder.mkdir()
        return folder

    def start(self, *words: object) -> subprocess.Popen[str]:
        """Start a command of ours, or ``python``, its output in pipes."""
        name, *rest = map(str, words)
        return subprocess.Popen(
            [str(self.python.folder / name), *rest], cwd=self.folder, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; one that takes too long is killed, and has the status None of no command, -1."""
        process = self.start(*words)
        try:
            stdout, stderr = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            stdout, stderr = process.communicate()
            return subprocess.CompletedProcess(process.args, -1, stdout, stderr)
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    def whole(self, *words: object) -> str:
        """Run a command that must succeed, and return what it printed."""
        result = self.run(*words)
        assert result.returncode == 0, f"{result.args}\n{result.stdout[-2000:]}\n{result.stderr[-4000:]}"
        return result.stdout


#: Runs for as long as it is asked: each step gives what came of one or several attacks.
Attack = Callable[[Place], Iterator[Finding]]


def killed_within(process: subprocess.Popen[str], seconds: float) -> bool:
    """Return whether a process had to be killed, and with it all of its group if it leads one."""
    try:
        process.communicate(timeout=seconds)
        return False
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL) if os.getpgid(process.pid) == process.pid else process.kill()
        process.communicate()
        return True


def refusal(result: subprocess.CompletedProcess[str], kind: str, detail: str) -> Finding:
    """Judge a command that was to fail, or not to mind."""
    if result.returncode == -1:
        return Finding(kind, Outcome.HUNG, detail)
    if "Traceback" in result.stderr:
        return Finding(kind, Outcome.SURPRISED, f"{detail}: {result.stderr.strip()[-600:]}")
    return Finding(kind, Outcome.REFUSED if result.returncode else Outcome.HARMLESS, detail)


def digests(paths: Sequence[Path]) -> dict[str, str]:
    """Return a digest of each file, and of each file in a folder."""
    files = [file for path in paths for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.is_file()}


def seconds_of(run: Callable[[], object]) -> float:
    """Return how long something takes."""
    begin = time.monotonic()
    run()
    return time.monotonic() - begin
