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
from collections.abc import Iterable
from contextlib import suppress
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
                instead, and the log goes to ``train.log``.

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
        log, errors = self.folder / ("train.log" if updates else "output.log"), self.folder / "errors.log"
        with log.open("wb") as output, errors.open("wb") as complaints, log.open(errors="replace") as reading:
            process = subprocess.Popen(
                ["sh", "-c", typed], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=output, stderr=complaints,
                env=dict(os.environ, PATH=os.pathsep.join([self._programs, os.environ["PATH"]])),
                start_new_session=True,
            )  # fmt: skip
            try:
                while process.poll() is None:
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(PROGRESS_EVERY)
                    show_training(reading if updates else (), updates, time.monotonic() - started)
            except BaseException:  # Ctrl-C, say: what the command started is ended, too
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
                process.wait()
                raise
        printed, complained = (file.read_text(errors="replace").splitlines() for file in (log, errors))
        if process.returncode != 0:
            last_lines = (complained or printed)[-10:]
            raise CommandError(
                f"this command ended with status {process.returncode}:\n  {typed}\n" + "\n".join(last_lines)
            )
        for line in [] if updates else printed[-3:]:
            print(f"  {line}")
        print(f"  {time.monotonic() - started:.1f} s", flush=True)


def show_training(lines: Iterable[str], updates: int, seconds: float) -> None:
    """Print what new lines of the log say: validations, where training is after ``seconds``, what it still takes."""
    state: dict[str, str] = {}
    for line in lines:
        head, _, values = line.rpartition(" | ")
        kind = head.rpartition(" | ")[2]
        if kind not in ("train_inner", "valid") or not values.endswith("}\n"):
            continue
        if kind == "train_inner":
            state = json.loads(values)
        else:
            valid = json.loads(values)
            print(f"  update {valid['valid_num_updates']}/{updates}: validation loss {valid['valid_loss']}", flush=True)
    if state:
        left = seconds * (updates / int(state["num_updates"]) - 1)
        print(
            f"  update {state['num_updates']}/{updates}  loss {state['loss']}  "
            f"{float(state['wps']):,.0f} tokens/s  about {left / 60:.1f} minutes left",
            flush=True,
        )
