"""SIGKILL at random moments, and disks that are full: what is started again ends as if nothing had been."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from forked_python import ForkedPython
from probe_checkpoints import checkpoint_of, data_in
from soak import DIFFERENT, EQUAL, HUNG, LOST, Finding
from training_states import assert_same_state

from fairseq_compat import UserError, checkpoints

#: Seconds after which a command counts as hanging.
PATIENCE = 120.0

_WIDTHS = [f"--{side}-{size}" for side in ("encoder", "decoder") for size in ("embed-dim=32", "attention-heads=2")]
_FEED_FORWARD = ["--encoder-ffn-embed-dim=64", "--decoder-ffn-embed-dim=64"]
_GROWTH = ["--task", "translation_layer_growth", "--lr-scheduler", "inverse_sqrt_restart", "--growth-stages"]
_LEARNING = [
    "--share-all-embeddings", "--optimizer", "adam", "--lr", "0.005", "--warmup-updates", "4", "--max-tokens", "600",
    "--criterion", "label_smoothed_cross_entropy_with_auxiliary", "--label-smoothing", "0.1", "--cpu", "--log-format",
    "json", "--save-interval-updates", "1", "--keep-interval-updates", "2", "--validate-interval", "99",
]  # fmt: skip

#: Trainings that are killed: a name and its options.
TRAININGS: dict[str, list[str]] = {
    "sdt, moments stay, bf16": [
        "--arch", "sdt_transformer", *_WIDTHS, *_FEED_FORWARD, "--encoder-block-size", "1", "--decoder-layers", "2",
        *_GROWTH, "2:4u,3:3u,4:5u", "--growth-optimizer-state", "keep", "--bf16", "--num-workers", "0",
    ],
    "mute, noise, moving average": [
        "--arch", "mute_transformer_sequential", *_WIDTHS, *_FEED_FORWARD, "--encoder-layers", "2",
        "--decoder-layers", "1", "--lr-scheduler", "inverse_sqrt", "--store-ema", "--ema-decay", "0.9",
        "--update-freq", "2", "--max-update", "10",
    ],
}  # fmt: skip

#: A program that runs a command with a limit for the size of its files.
_LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limit = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
from fairseq_depthwise import cli
sys.exit(cli.main())
"""


class Commands:
    """Runs our commands in a folder, with data and models for them."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder, self._python, self._folders = folder, ForkedPython(), 0
        lines = [" ".join(f"w{chance.randrange(8)}" for _ in range(chance.randint(2, 9))) for _ in range(500)]
        self.data = data_in(folder / "data", train=lines)
        self.inputs = self.new_folder()
        self.models = [checkpoint_of(self.inputs, "sdt_transformer", f"checkpoint{number}.pt") for number in (1, 2)]
        self.text = self.inputs / "text"
        self.text.write_text("".join(f"w{number % 8} w{number % 5} w3\n" for number in range(60)), encoding="utf-8")

    def new_folder(self) -> Path:
        self._folders += 1
        (made := self.folder / f"folder{self._folders}").mkdir()
        return made

    def run(self, words: Sequence[object], seconds: float = PATIENCE, limit: int = 0) -> tuple[int | None, str]:
        """Run a command; return status and errors, or None if it had to be killed, with all that it started."""
        start = ["-c", _LIMITED, limit] if limit else ["-m", "fairseq_depthwise"]
        process = subprocess.Popen(
            [str(self._python.python), *map(str, [*start, *words])], cwd=self.folder, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            _, errors = process.communicate(timeout=seconds)
            return process.returncode, errors
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return None, ""

    def writing(self, output: Path) -> dict[str, list[object]]:
        """Return the commands that write an output."""
        given = ["--data", self.data]
        search = ["--cpu", "--tokenized", "--max-len-b", "9", "--output", output]
        return {
            "average": ["average", *self.models, "--output", output],
            "grow": ["grow", self.models[0], output, "--layers", "8"],
            "export": ["export", self.models[0], output, *given],
            "translate": ["translate", self.models[0], self.text, *given, *search],
        }


def disturbance(chance: random.Random, seconds: float, size: int) -> dict[str, Any]:
    """Return how a command is disturbed that takes so long and writes so much: it is killed, or the disk is full."""
    return chance.choice([{"seconds": chance.uniform(0.0, 1.0) * seconds}, {"limit": chance.randrange(1, size)}])


def trainings(folder: Path, chance: random.Random) -> Iterator[Finding]:
    """Disturb trainings again and again until they end, and compare with those that were left alone."""
    runs, whole = Commands(folder, chance), dict[str, tuple[Path, float]]()
    while True:
        for name, options in TRAININGS.items():
            command = ["train", runs.data, *_LEARNING, *options, "--save-dir"]
            if name not in whole:
                alone, begin = runs.new_folder(), time.monotonic()
                assert runs.run([*command, alone])[0] == 0, name
                whole[name] = alone, time.monotonic() - begin
            alone, seconds = whole[name]
            size, disturbed = (alone / "checkpoint_last.pt").stat().st_size, runs.new_folder()
            ends = [runs.run([*command, disturbed], **disturbance(chance, seconds, size)) for _ in range(6)]
            status, errors = runs.run([*command, disturbed])
            broken = HUNG if status is None else LOST if status else _difference(alone, disturbed)
            yield from (_judged(name, *end, broken, errors) for end in ends if end[0] != 0)
            shutil.rmtree(disturbed)


def _judged(name: str, status: int | None, errors: str, broken: str, later: str) -> Finding:
    """Judge a disturbance by how the command ended, and by what is broken after it was run again."""
    silent = "" if "Traceback" not in errors else LOST
    return f"{name}, {'killed' if status is None else 'full disk'}", broken or silent or EQUAL, (errors + later)[-800:]


def _difference(whole: Path, folder: Path) -> str:
    """Return how the end of a training differs from that of another; nothing if it does not."""
    try:
        assert_same_state(whole / "checkpoint_last.pt", folder / "checkpoint_last.pt")
    except (AssertionError, UserError, OSError):
        return DIFFERENT
    return LOST if list(folder.glob("*.fairseq-unfinished")) else ""


def commands(folder: Path, chance: random.Random) -> Iterator[Finding]:
    """Disturb commands that write: what they read and what was there before stays, and the next call is whole."""
    runs = Commands(folder, chance)
    before = _content(runs.inputs)
    while True:
        output = runs.new_folder() / "result"
        for name, words in runs.writing(output).items():
            begin = time.monotonic()
            assert runs.run([*words, "--force"])[0] == 0, name
            seconds, expected = time.monotonic() - begin, _content(output)
            size = max(path.stat().st_size for path in [output, *output.rglob("*")])
            for replaced in (False, True, True):
                if not replaced:
                    _remove(output)
                end = runs.run([*words, *(["--force"] if replaced else [])], **disturbance(chance, seconds, size))
                left = _content(output)
                whole = left == expected or (left is None and not replaced)
                status, errors = runs.run([*words, "--force"])
                equal = whole and status == 0 and _content(output) == expected and _content(runs.inputs) == before
                if end[0] != 0:
                    yield _judged(name, *end, "" if equal else HUNG if status is None else LOST, errors)
            _remove(output)


def _content(output: Path) -> Any:
    """Return what an output says, without the times that are in its bytes; None where there is none."""
    if output.is_dir():
        return {path.name: _content(path) for path in sorted(output.iterdir())}
    if not output.exists():
        return None
    content = output.read_bytes()
    if output.suffix == ".json":
        return {**json.loads(content), "versions": None}
    if not content.startswith(b"PK"):
        return content
    return {name: tensor.tolist() for name, tensor in checkpoints.load_checkpoint(output)["model"].items()}


def _remove(output: Path) -> None:
    if output.is_dir():
        shutil.rmtree(output)
    output.unlink(missing_ok=True)
