"""One training of a sweep, by the recipe's own scripts: trained, or gone on with, translated and scored."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluate import forms
from run_folder import FINISHED, languages_of
from sweep_plan import Run

from fairseq_compat import checkpoints
from fairseq_compat.files import atomic_write
from fairseq_depthwise.evaluation.checkpoint_summary import summarize
from fairseq_depthwise.evaluation.scores import TranslationMetric
from fairseq_depthwise.evaluation.sentence_counts import count_sentences, to_text
from fairseq_depthwise.evaluation.translations import read_lines
from fairseq_depthwise.reports.training_log import read_log
from recipes import RECIPES

RECIPE_FOLDERS = Path(__file__).resolve().parent.parent

#: Seconds between two looks at what a training has used of the processor.
LOOK = 5.0


@dataclass
class Training:
    """A training while it runs.

    Attributes:
        run: which.
        rate: its peak rate.
        folder: where it keeps its files.
        lock: the sweep's descriptor, which its commands hold as well.
        gpu: the number of the one that it runs on; None for the CPU.
        process: what runs now, None between two commands.
        stopping: whether it was told to end; its next command does not begin.
    """

    run: Run
    rate: float
    folder: Path
    lock: int
    gpu: int | None = None
    process: subprocess.Popen[bytes] | None = None
    stopping: bool = False

    @property
    def log(self) -> Path:
        """Return what its commands print."""
        return self.folder / "sweep.log"

    def is_foreign(self) -> bool:
        """Return whether there are files in the folder already and none of a sweep's."""
        return self.folder.exists() and not self.log.exists() and any(self.folder.iterdir())

    def stop(self) -> None:
        """End it, so that the same command goes on later."""
        self.stopping = True
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)

    def script(self, name: str, environment: Mapping[str, str], *arguments: str) -> int:
        """Run a script of the recipes in a process group of its own; return its status."""
        if self.stopping:
            return -signal.SIGTERM
        with self.log.open("ab") as file:
            self.process = subprocess.Popen(
                ["bash", str(RECIPE_FOLDERS / name), self.run.recipe, self.run.system, *arguments],
                env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                start_new_session=True, pass_fds=(self.lock,),
            )  # fmt: skip
        lower_priority(self.process.pid)
        record = self.folder / f"{name}.seconds"
        before, now = _seconds(record), 0.0
        while (status := self.process.poll()) is None:
            now = max(now, group_seconds(self.process.pid))
            with atomic_write(record) as file:
                file.write(f"{before + now:.1f}\n".encode())
            time.sleep(LOOK if now > LOOK else 0.1)
        if self.stopping:
            wait_for_group(self.process.pid)
        self.process = None
        return status


def train_and_score(training: Training, work: Path, threads: int, extra: Sequence[str]) -> dict[str, Any] | None:
    """Train to the end; if it is of full length, translate the test set and score it as well.

    Returns:
        what belongs into the record; None if it was told to stop.
    """
    run, folder = training.run, training.folder
    folder.mkdir(parents=True, exist_ok=True)
    python = os.environ.get("PYTHON", sys.executable)
    same = {"WORK": str(work), "PYTHON": python, "OMP_NUM_THREADS": str(threads), "PRECISION": "fp32"}
    # What the environment may say for other trainings; BATCH_TOKENS, the only one left, is in the record.
    same |= {"AVERAGE": "", "NNODES": "1", "NODE_RANK": "0", "MAX_RESTARTS": ""}
    if training.gpu is None:
        same["GPUS"] = "0"
    else:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        number = visible[training.gpu] if training.gpu < len(visible) and visible[0] else str(training.gpu)
        same |= {"GPUS": "1", "CUDA_VISIBLE_DEVICES": number}
    result: dict[str, Any] = {"rate": training.rate}
    if not (folder / FINISHED).exists():
        environment = {**same, "RUN": run.name, "SEED": str(run.seed), "PROCESSES": "1"}
        status = training.script("train.sh", environment, *run.options(training.rate), *extra)
        if training.stopping:
            return None
        if status:
            return result | {"failed": _last_words(training.log)}
    result |= {"cpu_seconds": _seconds(folder / "train.sh.seconds"), **_measured(folder)}
    if run.rate is not None:
        return result
    status = training.script("evaluate.sh", {**same, "SEEDS": str(run.seed)})
    if training.stopping:
        return None
    if status:
        return result | {"failed": _last_words(training.log)}
    return result | _scores(run, work, folder)


def _measured(folder: Path) -> dict[str, Any]:
    """Return what the log and the last checkpoint say of a training."""
    last = str(folder / "checkpoints" / "checkpoint_last.pt")
    summary = summarize(checkpoints.load_checkpoint(last, mapped=True), last)
    series = read_log(str(folder / "train.log")).series
    valid, inner = series["valid"]["nll_loss"], series["train_inner"]["wpb"]
    best = min(range(len(valid.values)), key=lambda place: valid.values[place])
    return {
        "parameters": summary.parameters,
        "updates": summary.updates,
        "tokens": round(sum(inner.values) / len(inner.values) * (summary.updates or 0)),
        "loss": valid.values[-1],
        "best_loss": valid.values[best],
        "best_updates": valid.updates[best],
        "curve": [[update, round(value, 4)] for update, value in zip(valid.updates, valid.values, strict=True)],
    }


def _scores(run: Run, work: Path, folder: Path) -> dict[str, Any]:
    """Return every metric of the recipe, and of its first what each sentence contributes."""
    test = read_lines(str(work / "data-bin" / "tests.txt"))[0]
    _, language = languages_of(work / "data-bin")
    metrics: dict[str, dict[str, Any]] = {}
    for name in RECIPES[run.recipe].metrics:
        metric = TranslationMetric(name)
        suffix, references = forms(work, test, language, metric)
        sentences = read_lines(str(folder / "evaluation" / f"{test}{suffix}"))
        scored = metric.score(sentences, references)
        metrics[name] = {"score": scored.score, "signature": scored.signature}
        if name == RECIPES[run.recipe].metrics[0]:
            metrics[name]["sentences"] = to_text(count_sentences(metric, sentences, references[0]))
    average = checkpoints.load_checkpoint(folder / "average.pt", mapped=True)
    averaged = len(average["extra_state"]["averaged_from"])
    return {"test": test, "metrics": metrics, "averaged": averaged}


# --- the processor: who goes first, and what a training has used of it -----------------------------------------------


def lower_priority(session: int) -> None:
    """Let a session of processes wait for other sessions as its niceness says.

    Linux shares the processor between sessions first, where it groups them by itself, and heeds niceness only within
    each.
    """
    with contextlib.suppress(OSError):  # a system that does not group them
        Path(f"/proc/{session}/autogroup").write_text(f"{os.nice(0)}\n")


def wait_for_group(group: int, most: float = 10.0) -> None:
    """Wait until no process of a group is left, at most so many seconds: a child can end a moment after its parent."""
    end = time.monotonic() + most
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < end:
            os.killpg(group, 0)
            time.sleep(0.05)


def group_seconds(group: int) -> float:
    """Return the processor time of a process group in seconds, of children that have ended as well.

    Not the clock's: a sweep runs beside other work, and is stopped while something is measured.
    """
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # Behind the command's name, which may hold spaces: state, parent, group, and from the 12th on the times.
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        if int(fields[2]) == group:
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _seconds(path: Path) -> float:
    """Return what was written down of a script, which a kill does not take away."""
    try:
        return float(path.read_text())
    except (FileNotFoundError, ValueError):  # a file that is damaged says nothing
        return 0.0


def _last_words(log: Path) -> str:
    """Return what a command that failed said last of an error, cut to a length that a table holds."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["it said nothing"]
    # The last of all is the script's own: that there was an error, and how to go on.
    errors = [line for line in lines if "error" in line.lower() and not line.startswith("train: error")]
    return (errors or lines)[-1][:300]
