"""Runs commands as a user would type them: prints each, adds it to a script, and shows the progress of training."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import torch

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
        # The plugin is not imported, which takes seconds.
        plugin = importlib.util.find_spec("fairseq_depthwise")
        if plugin is None or plugin.origin is None:
            raise CommandError("fairseq-depthwise is not installed in this Python; run make setup")
        self._user_dir = str(Path(plugin.origin).parent)
        self._script = folder / "commands.sh"
        self._script.write_text(SCRIPT_HEAD.format(programs=shlex.quote(self._programs)), encoding="utf-8")

    def run(self, command: str, *, writes: str = "", updates: int = 0, shown: int = 3) -> None:
        """Print a command, run it, and say how long it took.

        Args:
            command: to be typed in a shell.
            writes: a file of the folder that its output goes to (``> writes`` is added); without it the end of the
                output is shown.
            shown: the number of lines of that end.
            updates: of a training, whose progress is shown instead; its log in JSON goes to ``train.log``.

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
        process = subprocess.Popen(
            ["sh", "-c", typed],
            cwd=self.folder,
            env={**os.environ, "PATH": os.pathsep.join([self._programs, os.environ["PATH"]])},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        lines = []
        try:
            with (self.folder / ("train.log" if updates else "output.log")).open("w", encoding="utf-8") as log:
                for line in process.stdout or ():
                    log.write(line)
                    lines.append(line)
                    if updates:
                        show_progress(line, updates, time.monotonic() - started)
            process.wait()
        except BaseException:  # also Ctrl-C: what the command started is ended, too
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            raise
        if process.returncode != 0:
            last_lines = "".join(lines[-10:])
            raise CommandError(f"this command ended with status {process.returncode}:\n  {typed}\n{last_lines}")
        if not updates:
            print("".join(f"  {line}" for line in lines[-shown:]), end="")
        print(f"  {time.monotonic() - started:.1f} s", flush=True)


def show_progress(line: str, updates: int, seconds: float) -> None:
    """Print a line of fairseq-train's log if it has a validation, or how far training is after ``seconds``."""
    head, _, values = line.rpartition(" | ")
    if head.endswith("| valid"):
        valid = json.loads(values)
        print(f"  update {valid['valid_num_updates']}/{updates}: validation loss {valid['valid_loss']}", flush=True)
    elif head.endswith("| train_inner"):
        state = json.loads(values)
        remaining = seconds * (updates / int(state["num_updates"]) - 1)
        print(
            f"  update {state['num_updates']}/{updates}  loss {state['loss']}  "
            f"{float(state['wps']):,.0f} tokens/s  about {remaining / 60:.1f} minutes left",
            flush=True,
        )
