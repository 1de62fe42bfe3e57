"""Runs the scripts of recipes with small corpora and small models."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

RECIPES = Path(__file__).parents[2] / "recipes"

#: Seconds after which a script is killed and its test fails.
TIMEOUT = 240

#: Subwords for a few hundred sentences; dictionaries with all of them.
SMALL_TEXT = {"DISK": "1", "MERGES": "150", "THRESHOLD": "0", "VOCABULARY": "160", "HELD_OUT": "12"}
#: A batch that a small training set has several of.
SMALL_BATCH = {"BATCH_TOKENS": "600", "MAX_TOKENS": "600", "CPU": "1"}
#: Variables of whoever runs the tests that would decide something here.
_STRANGE = re.compile(
    r"SLURM_|MASTER_|NNODES$|NODE_RANK$|MAX_RESTARTS$|(SEEDS?|RUN|GPUS|PROCESSES|BF16|PRECISION|AVERAGE|TEMPERATURE|MIRROR|DOWNLOADS|LDC)$"
)


@dataclass
class Work:
    """A recipe's scripts, the folder they work in, and what is added to the environment of each."""

    recipe: str
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def command(self, script: str) -> list[str]:
        """Return the path of a script, and the recipe that it takes unless it is the recipe's own."""
        if script == "prepare":
            return [str(RECIPES / self.recipe / "prepare.sh")]
        return [str(RECIPES / f"{script}.sh"), self.recipe]

    def start(
        self, script: str, *arguments: object, largest_file: int = resource.RLIM_INFINITY, **environment: object
    ) -> subprocess.Popen[str]:
        """Start a script in a process group of its own, with its output in pipes.

        ``largest_file``: bytes at which writing fails, for scripts with the real interpreter.
        """
        inherited = {name: value for name, value in os.environ.items() if not _STRANGE.match(name)}
        return subprocess.Popen(
            ["bash", *self.command(script), *map(str, arguments)],
            env={
                **inherited, "PYTHON": sys.executable, "JOBS": "1", "WORK": str(self.folder),
                **SMALL_TEXT, **self.environment, **{name: str(value) for name, value in environment.items()},
            },
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, resource.RLIM_INFINITY)),
        )  # fmt: skip

    def run(
        self, script: str, *arguments: object, status: int | None = 0, **environment: object
    ) -> subprocess.CompletedProcess[str]:
        """Run a script to its end."""
        return ended(self.start(script, *arguments, **environment), status)

    def train(
        self, system: str, *options: object, status: int | None = 0, **environment: object
    ) -> subprocess.CompletedProcess[str]:
        """Train a model of a small size."""
        return self.run("train", system, *options, status=status, **{**SMALL_BATCH, **environment})


def ended(process: subprocess.Popen[str], status: int | None = 0) -> subprocess.CompletedProcess[str]:
    """Wait for a script, which must end with ``status``, None for any; one that takes too long is killed."""
    try:
        stdout, stderr = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        kill(process)
        raise
    result = subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)
    if status is not None and result.returncode != status:
        raise AssertionError(
            f"{process.args} ended with status {result.returncode}\n--- stdout\n{stdout[-3000:]}\n"
            f"--- stderr\n{stderr[-5000:]}"
        )
    return result


def kill(process: subprocess.Popen[str]) -> None:
    """SIGKILL for a script and all that it started, as when a machine goes down."""
    os.killpg(process.pid, 9)
    process.communicate()


def small(width: int = 16, *, encoder: int = 2, decoder: int = 1) -> list[str]:
    """Options that make a system's model small."""
    return [
        *("--encoder-layers", str(encoder), "--decoder-layers", str(decoder)),
        *(f"--{side}-embed-dim={width}" for side in ("encoder", "decoder")),
        *(f"--{side}-attention-heads=2" for side in ("encoder", "decoder")),
    ]


def files_of(folder: Path) -> dict[str, bytes]:
    """The files of a folder and their contents."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def times_of(folder: Path) -> dict[str, int]:
    """When each file of a folder was written, but for the one that is locked."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".preparing")
    return {str(path): path.stat().st_mtime_ns for path in files}


def lines(path: Path) -> Sequence[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]
