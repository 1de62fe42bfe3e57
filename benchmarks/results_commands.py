"""Runs the commands of ``results.py`` in its work folder: prints each, and repeats none that is finished."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from taking_turns import OTHER_ENDED, PROGRAM, environment_of, ring

from fairseq_compat import UserError
from fairseq_compat.files import atomic_write
from fairseq_compat.outputs import begin_folder

#: Seconds between two progress lines.
PROGRESS_EVERY = 15.0

#: What fairseq says when it stops because gradients are not numbers.
NOT_FINITE = re.compile("Nan/Inf|FloatingPointError", re.IGNORECASE)


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Workplace:
    """A folder to work in that remembers which commands are finished.

    Args:
        folder: it is made if it is missing.
        corpus: the folder of the text; its parent is ``$CORPORA`` in commands.
        threads: threads of PyTorch.
    """

    def __init__(self, folder: Path, corpus: Path, threads: int) -> None:
        folder.absolute().parent.mkdir(parents=True, exist_ok=True)
        begin_folder("--work", str(folder), "folder of measurements")
        self.folder = folder
        self._finished = folder / "finished.txt"
        programs = str(Path(sys.executable).parent)
        self._environment = {
            **os.environ,
            "PATH": os.pathsep.join([programs, os.environ["PATH"]]),
            "CORPORA": str(corpus.resolve().parent),
            "OMP_NUM_THREADS": str(threads),
        }

    def only_for(self, name: str, settings: Mapping[str, object]) -> None:
        """Keep the settings, or compare them with those that the folder was used for.

        Raises:
            UserError: the folder holds results that were made with others.
        """
        path = self.folder / f"{name}.settings.json"
        if not path.exists():
            with atomic_write(path) as file:
                file.write(json.dumps(settings, indent=1).encode())
        before: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for key, value in settings.items():
            if before.get(key) != value:
                raise UserError(
                    f"--work {self.folder} holds results made with {key} {before.get(key)}, not {value}; "
                    "give another folder"
                )

    def unpack(self, corpus: Path, name: str) -> str:
        """The command that copies a file of the corpus here, unpacked."""
        packed = (corpus / f"{name}.gz").exists()
        path = f'"$CORPORA"/{shlex.quote(corpus.resolve().name)}/{name}'
        return f"gzip -dc {path}.gz > {name}" if packed else f"cat {path} > {name}"

    def is_finished(self, command: str) -> bool:
        return self._finished.exists() and command in self._finished.read_text(encoding="utf-8").split("\n")

    def run(self, command: str) -> None:
        """Print a command and run it, unless it is finished.

        Raises:
            UserError: its exit status is not 0.
        """
        if self.is_finished(command):
            return
        tell(f"\n$ {command}")
        started = time.monotonic()
        errors = self.folder / "errors.log"
        with errors.open("wb") as complaints, self._running(command, complaints, complaints) as process:
            status = process.wait()
        if status != 0:
            raise _failure(command, status, errors)
        self._keep(command)
        tell(f"  {time.monotonic() - started:.1f} s")

    def train(self, command: str, name: str, updates: int, *, may_diverge: bool = False) -> Path:
        """Run a training, or what is left of it, and give back its log; a later start adds to the log.

        Raises:
            UserError: it failed, and not because of numbers that are not finite where ``may_diverge`` allows that.
        """
        log = self.folder / f"{name}.log"
        if self.is_finished(command):
            return log
        tell(f"\n$ {command}")
        with log.open("ab") as writing, self._running(command, writing, writing) as process:
            while (status := _wait(process, PROGRESS_EVERY)) is None:
                _show(log, updates)
        diverged = may_diverge and NOT_FINITE.search(log.read_text(encoding="utf-8", errors="replace")[-5000:])
        if status != 0 and not diverged:
            raise _failure(command, status, log)
        _show(log, updates)
        self._keep(command)
        return log

    def train_in_turns(self, commands: Mapping[str, str], updates: int) -> dict[str, Path]:
        """Run trainings of equally many updates in turns, all or none of them; give back the log of each.

        Args:
            commands: name -> a command that begins with ``fairseq-depthwise``; the names are those of the logs.
            updates: of each training.

        Raises:
            UserError: one of them failed.
        """
        logs = {name: self.folder / f"{name}.log" for name in commands}
        if all(self.is_finished(_in_turns(command)) for command in commands.values()):
            return logs
        tell("\nin turns:")
        with ExitStack() as stack:
            processes = {}
            with ring(len(commands)) as places:
                for (name, command), ends in zip(commands.items(), places, strict=True):
                    tell(f"$ {command}")
                    output = stack.enter_context(logs[name].open("wb"))
                    started = self._running(_in_turns(command), output, output, ends, environment_of(ends))
                    processes[name] = stack.enter_context(started)
            for name, process in processes.items():
                while _wait(process, PROGRESS_EVERY) is None:
                    _show(logs[name], updates)
        for name in sorted(commands, key=lambda name: OTHER_ENDED in logs[name].read_text(errors="replace")):
            if (status := processes[name].returncode) != 0:
                raise _failure(commands[name], status, logs[name])
        for command in commands.values():
            self._keep(_in_turns(command))
        return logs

    def _keep(self, command: str) -> None:
        with self._finished.open("a", encoding="utf-8") as finished:
            finished.write(command + "\n")

    @contextmanager
    def _running(
        self,
        command: str,
        output: Any,
        errors: Any,
        pass_fds: Sequence[int] = (),
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> Iterator[subprocess.Popen[bytes]]:
        """The started command; it and what it started are ended if this program is stopped meanwhile."""
        process = subprocess.Popen(
            ["sh", "-c", command],
            cwd=self.folder,
            env={**self._environment, **environment},
            pass_fds=pass_fds,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
        try:
            yield process
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            raise


def _in_turns(command: str) -> str:
    """The command as a process of a ring."""
    program, rest = command.split(" ", 1)
    assert program == "fairseq-depthwise"
    return shlex.join([sys.executable, str(PROGRAM)]) + " " + rest


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """The exit status, or None if the process runs on."""
    try:
        return process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None


def _show(log: Path, updates: int) -> None:
    """Print where a training is."""
    lines = re.findall(r"\| train_inner \| (\{.*\})", log.read_text(encoding="utf-8", errors="replace"))
    if lines:
        state = json.loads(lines[-1])
        tell(f"  update {state['num_updates']}/{updates}  loss {state['loss']}  {state['wps']} tokens/s")


def _failure(command: str, status: int, log: Path) -> UserError:
    """The sentence for a command that failed, with the last lines of its output below."""
    last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-8:]
    return UserError("\n".join([f"a command ended with status {status}: {command}", *last]))
