"""Runs commands as a user would type them: prints each, keeps it in a script, and shows how it goes on."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch

#: Seconds between two progress lines of a training.
PROGRESS_EVERY = 5.0


class CommandError(Exception):
    """A command ended with another status than 0; the message has its last lines."""


class CommandLine:
    """Runs commands inside ``folder`` and writes them to ``folder/commands.sh``.

    In a command, ``{user_dir}`` stands for the plugin's folder. On a machine without a GPU, fairseq's commands get
    ``--cpu``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        plugin = importlib.util.find_spec("fairseq_depthwise")  # found, not imported: that takes seconds
        if plugin is None or plugin.origin is None:
            raise CommandError("fairseq-depthwise is not installed in this Python; run make setup")
        self._user_dir = str(Path(plugin.origin).parent)
        self._script = folder / "commands.sh"
        self._script.write_text("#!/bin/sh\nset -e\n", encoding="utf-8")

    def run(self, command: str, *, stdin: str = "", stdout: str = "", updates: int = 0) -> None:
        """Print a command, run it, and say how long it took.

        Args:
            command: what a user would type.
            stdin: file of the folder that is its input.
            stdout: file of the folder that its output goes to; shown unless given.
            updates: number of updates, for a command whose output is fairseq-train's JSON log: then progress is shown
                instead of the log, which goes to ``train.log``.

        Raises:
            CommandError: its exit status is not 0.
        """
        command = command.format(user_dir=shlex.quote(self._user_dir))
        if command.startswith(("fairseq-train", "fairseq-generate")) and not torch.cuda.is_available():
            command += " --cpu"
        typed = command + (f" < {stdin}" if stdin else "") + (f" > {stdout}" if stdout else "")
        print(f"\n$ {typed}", flush=True)
        with self._script.open("a", encoding="utf-8") as script:
            script.write(typed + "\n")

        started = time.monotonic()
        if updates:
            status, last_lines = self._train(command, updates)
        else:
            status, last_lines = self._plain(command, stdin, stdout)
        if status != 0:
            raise CommandError(f"this command ended with status {status}:\n  {typed}\n" + "\n".join(last_lines))
        print(f"  {time.monotonic() - started:.1f} s", flush=True)

    def _start(self, command: str, **pipes: object) -> subprocess.Popen[str]:
        environment = dict(os.environ, PATH=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
        return subprocess.Popen(  # type: ignore[call-overload, no-any-return]  # the pipes are those of two callers
            shlex.split(command), cwd=self.folder, env=environment, text=True, encoding="utf-8", **pipes
        )

    def _plain(self, command: str, stdin: str, stdout: str) -> tuple[int, list[str]]:
        errors = self.folder / "errors.log"
        with (
            open(self.folder / stdin if stdin else os.devnull, "rb") as reading,
            open(self.folder / (stdout or "output.log"), "wb") as writing,
            errors.open("wb") as complaints,
        ):
            process = self._start(command, stdin=reading, stdout=writing, stderr=complaints)
            while True:
                try:
                    status = process.wait(timeout=PROGRESS_EVERY)
                    break
                except subprocess.TimeoutExpired:
                    print("  ...", flush=True)
        if not stdout:
            self._show_end(self.folder / "output.log")
        return status, errors.read_text(encoding="utf-8", errors="replace").splitlines()[-10:]

    def _show_end(self, output: Path) -> None:
        for line in output.read_text(encoding="utf-8", errors="replace").splitlines()[-3:]:
            print(f"  {line}")

    def _train(self, command: str, updates: int) -> tuple[int, list[str]]:
        process = self._start(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert process.stdout is not None
        last_lines: list[str] = []
        with (self.folder / "train.log").open("w", encoding="utf-8") as log:

            def kept() -> Iterator[str]:
                for line in process.stdout or ():
                    log.write(line)
                    last_lines.append(line.rstrip("\n"))
                    del last_lines[:-10]
                    yield line

            show_training(kept(), updates)
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
                print(f"  expected to take about {in_words(now - started + left)}", flush=True)
            print(
                f"  update {state['num_updates']}/{updates}  loss {state['loss']}  "
                f"{float(state['wps']):,.0f} tokens/s  about {in_words(left)} left",
                flush=True,
            )


def in_words(seconds: float) -> str:
    """A duration for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours"
