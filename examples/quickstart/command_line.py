"""Runs commands as a user would type them: prints each, keeps it in a script, and shows how it goes on."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

#: Seconds between two progress lines.
PROGRESS_EVERY = 5.0

#: The beginning of the script that repeats a run; it works in a folder of its own and overwrites nothing.
SCRIPT_HEAD = """#!/bin/sh
# Repeats this run, in the new folder "repeated".
set -e
PATH={programs}:$PATH
cd "$(dirname "$0")"
mkdir repeated
cd repeated
"""


class CommandError(Exception):
    """A command ended with another status than 0; the message has its last lines."""


class CommandLine:
    """Runs shell commands inside ``folder`` and writes them to ``folder/commands.sh``.

    In a command, ``{user_dir}`` stands for the plugin's folder. On a machine without a GPU, fairseq's commands that
    compute get ``--cpu``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._programs = str(Path(sys.executable).parent)
        plugin = importlib.util.find_spec("fairseq_depthwise")  # found, not imported: that takes seconds
        if plugin is None or plugin.origin is None:
            raise CommandError("fairseq-depthwise is not installed in this Python; run make setup")
        self._user_dir = str(Path(plugin.origin).parent)
        self._script = folder / "commands.sh"
        self._script.write_text(SCRIPT_HEAD.format(programs=shlex.quote(self._programs)), encoding="utf-8")

    def run(self, command: str, *, writes: str = "", updates: int = 0) -> None:
        """Print a command, run it, and say how long it took.

        Args:
            command: what a user would type.
            writes: a file of the folder that its output goes to (``> writes`` is added); the end of the output is shown
                unless given.
            updates: number of updates, for a command whose output is fairseq-train's JSON log: then progress is shown
                instead of the log, which goes to ``train.log``.

        Raises:
            CommandError: its exit status is not 0.
        """
        command = command.replace("{user_dir}", shlex.quote(self._user_dir))
        if command.startswith(("fairseq-train", "fairseq-generate")) and not torch.cuda.is_available():
            command += " --cpu"
        typed = f"{command} > {writes}" if writes else command
        print(f"\n$ {typed}", flush=True)
        with self._script.open("a", encoding="utf-8") as script:
            script.write(typed + "\n")

        started = time.monotonic()
        status, last_lines = self._train(typed, updates) if updates else self._plain(typed, writes)
        if status != 0:
            raise CommandError(f"this command ended with status {status}:\n  {typed}\n" + "\n".join(last_lines))
        print(f"  {time.monotonic() - started:.1f} s", flush=True)

    @contextmanager
    def _running(self, typed: str, **pipes: object) -> Iterator[subprocess.Popen[str]]:
        """Start the command; it and what it started are ended if what watches it is (Ctrl-C, say)."""
        environment = dict(os.environ, PATH=os.pathsep.join([self._programs, os.environ["PATH"]]))
        process = subprocess.Popen(  # type: ignore[call-overload]  # the pipes are those of two callers
            ["sh", "-c", typed], cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, text=True,
            encoding="utf-8", start_new_session=True, **pipes,
        )  # fmt: skip
        try:
            yield process
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            raise

    def _plain(self, typed: str, writes: str) -> tuple[int, list[str]]:
        output, errors = self.folder / "output.log", self.folder / "errors.log"
        written = self.folder / writes
        with (
            output.open("wb") as writing,
            errors.open("wb") as complaints,
            self._running(typed, stdout=writing, stderr=complaints) as process,
        ):
            while process.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(PROGRESS_EVERY)
                    break
                size = written.stat().st_size if writes and written.exists() else 0
                print(f"  ... {size / 1e6:.1f} MB of {writes}" if size else "  ...", flush=True)
        for line in output.read_text(encoding="utf-8", errors="replace").splitlines()[-3:]:
            print(f"  {line}")
        return process.returncode, errors.read_text(encoding="utf-8", errors="replace").splitlines()[-10:]

    def _train(self, typed: str, updates: int) -> tuple[int, list[str]]:
        last_lines: list[str] = []
        with (
            (self.folder / "train.log").open("w", encoding="utf-8") as log,
            self._running(typed, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process,
        ):

            def logged() -> Iterator[str]:
                for line in process.stdout or ():
                    log.write(line)
                    last_lines.append(line.rstrip("\n"))
                    del last_lines[:-10]
                    yield line

            show_training(logged(), updates)
            return process.wait(), last_lines


def show_training(lines: Iterator[str], updates: int) -> None:
    """Print a line every few seconds: where training is and how long it will still take."""
    started = shown = time.monotonic()
    announced = False
    for line in lines:
        head, _, values = line.rstrip("\n").rpartition(" | ")
        kind = head.rpartition(" | ")[2]
        if kind not in ("train_inner", "valid") or not values.startswith("{"):
            continue
        state = json.loads(values)
        now = time.monotonic()
        if kind == "valid":
            update = state["valid_num_updates"]
            print(f"  update {update}/{updates}: validation loss {state['valid_loss']}", flush=True)
        elif now - shown >= PROGRESS_EVERY:
            shown = now
            done = int(state["num_updates"]) / updates
            left = (now - started) * (1 / done - 1)
            if not announced:
                announced = True
                print(f"  at this speed training takes {in_words(now - started + left)}", flush=True)
            print(
                f"  update {state['num_updates']}/{updates}  loss {state['loss']}  "
                f"{float(state['wps']):,.0f} tokens/s  about {in_words(left)} left",
                flush=True,
            )


def in_words(seconds: float) -> str:
    """Return a duration for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours"
