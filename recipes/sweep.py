"""Runs the protocol of docs/results.md: every system of the small recipes, with tuned peak rates and several seeds.

    python recipes/sweep.py --jobs 2                         Multi30k and Tatoeba, two trainings at a time
    python recipes/sweep.py --jobs 12 --gpus 1               on a GPU that twelve trainings share
    python recipes/sweep.py --recipes mixed_de_en --gpus 1   at base width, which needs a GPU
    python recipes/sweep.py --recipes multi30k --systems transformer depthwise_lstm --seeds 1
    python recipes/sweep.py --status                         what is done, running and left
    python recipes/sweep.py --tables                         the tables, of what is in the records so far
    python recipes/sweep.py --figures runs/figures           the figures

Each training has one thread and the lowest priority unless options say otherwise. What has ended is in the records,
one JSON file for each recipe, and is not done again, unless it has failed and --retry-failed is given; a training that
was stopped goes on. Of a training that has ended the checkpoints are removed, but for the mean and the best one of full
length. What follows -- is given to every fairseq-train.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))
from recipe_step import run_step, say  # the folder is on the path by the line above
from sweep_figures import write_figures
from sweep_page import tables_of
from sweep_plan import SEEDS, SHORT, SIZES, SYSTEMS, Record, Run, all_runs
from sweep_training import RECIPE_FOLDERS, Training, train_and_score

from fairseq_compat import UserError
from fairseq_compat.files import atomic_write
from recipes import RECIPES


def main() -> None:
    arguments, extra = _split(sys.argv[1:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    small = [recipe for recipe in SIZES if not RECIPES[recipe].needs_gpu]
    parser.add_argument(
        "--recipes",
        nargs="+",
        choices=SIZES,
        help="default: those that need no GPU, and to be shown those that were begun",
    )
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--seeds", nargs="+", type=_seed, default=list(SEEDS), metavar="N")
    parser.add_argument("--work", type=Path, default=Path("runs/sweep"), help="where trainings keep their files")
    parser.add_argument("--records", type=Path, help="folder of the records (default: WORK/records)")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at a time (default: 1)")
    parser.add_argument("--threads", type=int, default=1, help="of each training (default: 1)")
    parser.add_argument("--gpus", type=int, default=0, help="that the trainings share (default: 0, the CPU)")
    parser.add_argument("--nice", type=int, default=19, help="0 to 19; 19 is the lowest priority (default)")
    parser.add_argument("--retry-failed", action="store_true", help="train again what ended with an error")
    parser.add_argument("--status", action="store_true", help="print what is done, running and left, and end")
    parser.add_argument("--tables", action="store_true", help="print the tables, of all systems, and end")
    parser.add_argument("--figures", type=Path, help="draw the figures, of all systems, into this folder, and end")
    options = parser.parse_args(arguments)
    for name in ("work", "records", "figures"):
        if (path := getattr(options, name)) is not None and str(path) in ("", "."):
            raise UserError(f"--{name} names no file or folder of its own; give its path")
    for name in ("jobs", "threads"):
        if getattr(options, name) < 1:
            raise UserError(f"--{name} {getattr(options, name)} must be at least 1")
    if options.gpus < 0:
        raise UserError(f"--gpus {options.gpus} must be at least 0")
    if not 0 <= options.nice <= 19:
        raise UserError(f"--nice {options.nice} must be from 0 to 19")
    folder = options.records or options.work / "records"
    for name, path in (("work", options.work), ("records", folder), ("figures", options.figures)):
        if path is not None and path.exists() and not path.is_dir():
            raise UserError(f"--{name} {path} is a file; give a folder")
    files = {recipe: folder / f"sweep_{recipe}.json" for recipe in SIZES}
    shown = options.figures or options.tables or options.status
    begun = [name for name in SIZES if files[name].exists() or (options.work / name).exists()] if shown else []
    recipes = options.recipes or [name for name in SIZES if name in small or name in begun]
    records = {recipe: Record(files[recipe], recipe) for recipe in recipes}
    runs = list(all_runs(recipes, options.systems, options.seeds))
    if shown:
        try:
            if options.figures:
                write_figures(options.figures, list(records.values()))
            if options.tables:
                for recipe, record in records.items():
                    print(f"{recipe}\n\n" + "\n".join(tables_of(record).values()))
            if options.status:
                print(status(runs, records, options.work, options.jobs))
        except UserError:
            raise
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, zlib.error) as error:
            where = ", ".join(str(record.path) for record in records.values())
            raise UserError(f"{where}: a value in it is none that a sweep writes ({error!r})") from error
        return
    if (large := set(recipes) - set(small)) and not options.gpus and os.environ.get("CPU") != "1":
        raise UserError(f"--recipes {' '.join(large)} needs --gpus 1 or more, or CPU=1 to train for weeks")
    if options.gpus:
        import torch

        if options.gpus > (there := torch.cuda.device_count()):
            raise UserError(f"--gpus {options.gpus}: PyTorch finds {there} on this machine")
    if options.retry_failed:
        for record in records.values():
            record.forget_failures()
    Sweep(runs, records, options, extra).train()


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separate our options from those behind ``--``."""
    ours = list(arguments)
    if "--" not in ours:
        return ours, []
    place = ours.index("--")
    return ours[:place], ours[place + 1 :]


def _seed(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1")
    return number


class Sweep:
    """Trains what is missing.

    Args:
        runs: all trainings, in their order.
        records: recipe -> what is known.
        options: of the command line.
        extra: options for every training.
    """

    def __init__(
        self, runs: Sequence[Run], records: dict[str, Record], options: argparse.Namespace, extra: Sequence[str]
    ) -> None:
        self.runs, self.records, self.options, self.extra = runs, records, options, extra
        self.running: dict[Future[dict[str, Any] | None], Training] = {}
        self.stopping = False
        self.lock = -1

    def train(self) -> None:
        """Train until nothing is left, or a signal comes: then the trainings end, and go on another time."""
        work: Path = self.options.work
        work.mkdir(parents=True, exist_ok=True)
        with only_one(work) as self.lock, ThreadPoolExecutor(self.options.jobs) as pool, self.none_left():
            os.nice(self.options.nice)
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *received: self.stop())
            for recipe in dict.fromkeys(run.recipe for run in self.runs):
                prepare(recipe, work / recipe)
                self.records[recipe].require_text(
                    (work / recipe / "text" / "train.report.txt").read_text().splitlines()
                )
            while not self.stopping:
                while len(self.running) < self.options.jobs and (run := self.next_run()) is not None:
                    self.start(run, pool)
                if not self.running:
                    break
                self.collect()
        if self.stopping:
            raise KeyboardInterrupt
        say(status(self.runs, self.records, work, self.options.jobs))

    @contextlib.contextmanager
    def none_left(self) -> Iterator[None]:
        """End the trainings that still run when something else has ended: an error of one, or a signal."""
        try:
            yield
        finally:
            for training in self.running.values():
                training.stop()

    def stop(self) -> None:
        self.stopping = True
        for training in self.running.values():
            training.stop()

    def next_run(self) -> Run | None:
        """Return the first training that is neither done nor running and whose peak rate is known."""
        begun = {training.run for training in self.running.values()}
        for run in self.runs:
            record = self.records[run.recipe]
            if run not in begun and record.of(run) is None and (run.rate or record.rate(run.system)):
                return run
        return None

    def start(self, run: Run, pool: ThreadPoolExecutor) -> None:
        rate = run.rate or self.records[run.recipe].rate(run.system)
        assert rate is not None
        work = self.options.work / run.recipe
        shared = [training.gpu for training in self.running.values()]
        gpu = min(range(self.options.gpus), key=shared.count, default=None)
        training = Training(run, rate, work / "systems" / run.name, self.lock, gpu)
        if training.is_foreign():
            raise UserError(f"{training.folder} has files of a training that no sweep began; give another --work")
        say(f"{_now()} {run.recipe}/{run.name} begins or goes on, peak rate {rate:g}")
        self.running[pool.submit(self.run, training, work)] = training

    def run(self, training: Training, work: Path) -> dict[str, Any] | None:
        """Train, keep what came of it beside the training, and remove the checkpoints that nothing reads again."""
        kept = training.folder / "result.json"  # which outlives a kill before it is in the record, or another record
        if not kept.exists():
            result = train_and_score(training, work, self.options.threads, self.extra)
            if result is None:
                return None
            result |= about(training.gpu, self.extra)
            if "failed" in result:
                return result
            with atomic_write(kept) as file:
                file.write(json.dumps(result).encode())
        try:
            result = json.loads(kept.read_text(encoding="utf-8"))
            if not isinstance(result, dict) or "updates" not in result:
                raise ValueError("no result")
        except (OSError, ValueError, RecursionError) as error:
            raise UserError(f"{kept} is not what a sweep wrote; remove its folder to train again") from error
        for path in (training.folder / "checkpoints").glob("checkpoint*.pt"):
            if training.run.rate is not None or path.name != "checkpoint_best.pt":
                path.unlink()
        return result

    def collect(self) -> None:
        """Wait for a training to end, and keep what came of it."""
        done, _ = wait(self.running, timeout=1, return_when=FIRST_COMPLETED)
        for future in done:
            training = self.running.pop(future)
            result = future.result()
            if result is None:
                continue
            run = training.run
            self.records[run.recipe].add(run, result)
            say(f"{_now()} {run.recipe}/{run.name} {_in_words(result)}")
            say(status(self.runs, self.records, self.options.work, self.options.jobs).splitlines()[-1])


@contextlib.contextmanager
def only_one(work: Path) -> Iterator[int]:
    """Keep others from training in the same folder at the same time.

    Yields:
        the descriptor that holds the lock. What inherits it holds the lock, too: the trainings of a sweep that was
        killed, which go on without it.

    Raises:
        UserError: one does.
    """
    # Never through a link, so that no other file can be meant.
    descriptor = os.open(work / ".sweep.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    with open(descriptor, "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(
                f"--work {work} is in use by process {file.read().strip()[:20]}, or by what that one has started; "
                "wait for it, or end it"
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield file.fileno()


def prepare(recipe: str, work: Path) -> None:
    """Make the recipe's data, unless they are there."""
    command = ["bash", str(RECIPE_FOLDERS / recipe / "prepare.sh")]
    environment = {"PYTHON": sys.executable, **os.environ, "WORK": str(work)}
    if code := subprocess.run(command, env=environment, stdout=sys.stderr).returncode:
        raise UserError(f"{' '.join(command)} ended with status {code}; what it printed above says why")


def about(gpu: int | None, extra: Sequence[str]) -> dict[str, Any]:
    """Return what a training ran on, and with which version of this repository."""
    import torch

    from fairseq_compat.process import processor_facts
    from fairseq_compat.versions import recorded_versions

    commit = "unknown"
    described = ["git", "describe", "--always", "--dirty"]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):  # no git, or no repository
        commit = subprocess.check_output(described, cwd=RECIPE_FOLDERS, stderr=subprocess.DEVNULL, text=True).strip()
    processor = processor_facts()
    facts = {
        "commit": commit,
        "processor": processor.get("model name", "unknown") if gpu is None else torch.cuda.get_device_name(gpu),
        "amx_bf16": "amx_bf16" in processor.get("flags", "").split(),
        "versions": recorded_versions(),
        "ended": datetime.now().isoformat(timespec="seconds"),
    }
    batch = [f"BATCH_TOKENS={tokens}"] if (tokens := os.environ.get("BATCH_TOKENS")) else []
    return facts | ({"options": [*batch, *extra]} if batch or extra else {})


def status(runs: Sequence[Run], records: dict[str, Record], work: Path, jobs: int) -> str:
    """Return a line for each training that is done, running or failed, and when all should be done."""
    lines, left, done, per_update = [], 0.0, 0, _seconds_per_update(records)
    for run in runs:
        result = records[run.recipe].of(run)
        updates = SIZES[run.recipe].updates // (1 if run.rate is None else SHORT)
        if result is not None:
            done += 1
            lines.append(f"  {run.recipe}/{run.name}: {_in_words(result)}")
            continue
        each = per_update.get((run.recipe, run.system)) or per_update.get(None) or 0.0
        behind = _updates_behind(work / run.recipe / "systems" / run.name)
        if behind:
            lines.append(f"  {run.recipe}/{run.name}: {behind:,} of at most {updates:,} updates")
        left += max(updates - behind, 0) * each
    end = datetime.now() + timedelta(seconds=left / jobs)
    expected = f", about {left / 3600:.1f} core-hours: on idle cores until {end:%Y-%m-%d %H:%M}" if left else ""
    return "\n".join([*lines, f"{done} of {len(runs)} trainings are done, {len(runs) - done} are left{expected}"])


def _seconds_per_update(records: dict[str, Record]) -> dict[tuple[str, str] | None, float]:
    """Return the processor's seconds per update by recipe and system, and under None the mean of all."""
    seconds: dict[tuple[str, str] | None, float] = {}
    for recipe, record in records.items():
        for name, result in record.content["runs"].items():
            if result.get("updates") and result.get("cpu_seconds"):
                system = name.split("-")[0]
                seconds[recipe, system] = result["cpu_seconds"] / result["updates"]
    if seconds:
        seconds[None] = sum(seconds.values()) / len(seconds)
    return seconds


def _updates_behind(folder: Path) -> int:
    """Return the updates of a training that has not ended, from the end of its log."""
    import re

    log = folder / "train.log"
    if not log.exists():
        return 0
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 20_000))
        numbers = re.findall(rb"num_updates[= ](\d+)", file.read())
    return int(numbers[-1]) if numbers else 0


def _in_words(result: dict[str, Any]) -> str:
    if "failed" in result:
        return f"failed: {result['failed']}"
    scores = ", ".join(f"{name} {metric['score']:.2f}" for name, metric in result.get("metrics", {}).items())
    minutes = result["cpu_seconds"] / 60
    return f"{result['updates']:,} updates, loss {result['loss']:.3f}, {minutes:.0f} min" + (
        f", {scores}" * bool(scores)
    )


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")


if __name__ == "__main__":
    run_step(main)
