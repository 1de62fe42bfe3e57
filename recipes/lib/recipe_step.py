"""What steps of a recipe share: errors of one sentence, settings from the environment, places of files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fairseq_compat import UserError
from fairseq_compat.commands.run import run_command
from fairseq_compat.files import atomic_write


def run_step(step: Callable[[], object]) -> None:
    """Run ``step`` and exit as every command does: 0, or 1 after one sentence, or 130 for Ctrl-C."""
    sys.exit(run_command(Path(sys.argv[0]).stem, step))


def safe_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment for ``python -m``, which would otherwise run modules in the current folder."""
    return {**environment, "PYTHONSAFEPATH": "1"}


def run_command_line(*words: object, **options: Any) -> None:
    """Run ``fairseq-depthwise WORD...``, with options of ``subprocess.run``; raise UserError if it fails."""
    command = [sys.executable, "-m", "fairseq_depthwise", *map(str, words)]
    # Translations that share GPUs pass an environment of their own.
    environment = safe_environment(options.pop("env", os.environ))
    if status := subprocess.run(command, env=environment, **options).returncode:
        raise UserError(f"fairseq-depthwise {words[0]} ended with status {status}; what it printed above says why")


def whole_number(environment: Mapping[str, str], name: str, default: int, lowest: int = 1) -> int:
    """Return a setting of the environment; raise UserError if it is no whole number of at least ``lowest``."""
    # An empty variable counts as unset.
    text = environment.get(name) or str(default)
    if not text.isdecimal() or int(text) < lowest:
        raise UserError(f"{name}={text} is not a whole number of at least {lowest}")
    return int(text)


def say(sentence: str) -> None:
    """Print progress to stderr; stdout is for results."""
    print(sentence, file=sys.stderr, flush=True)


def write_json(path: Path, document: object, indent: int | None = 2) -> None:
    """Write a document as JSON; with an indent of None in one line."""
    with atomic_write(path) as file:
        file.write((json.dumps(document, indent=indent) + "\n").encode())


def run_folder(environment: Mapping[str, str], system: str, seed: str | None = None) -> Path:
    """Return ``WORK/systems/SYSTEM``, with ``-seedN`` for other seeds than 1."""
    text = seed or environment.get("SEED") or "1"
    if not text.isdecimal():
        raise UserError(f"{text} is not a seed; SEED and SEEDS are whole numbers, such as SEEDS='1 2 3'")
    number = int(text)
    return Path(environment["WORK"]) / "systems" / (system if number == 1 else f"{system}-seed{number}")


def languages_of(data: Path) -> tuple[str, str]:
    """Return source and target language of binarized data; raise UserError unless it has exactly one pair."""
    # The second part of train.en-de.de.idx.
    pairs = {path.name.split(".")[1] for path in data.glob("train.*-*.*.idx")}
    if len(pairs) != 1:
        raise UserError(f"{data} has training data of {len(pairs)} language pairs; one is needed: prepare it again")
    source, _, target = pairs.pop().partition("-")
    return source, target
