"""Runs a registered plan: a grid for each system, then trainings of several seeds.

    python recipes/sweep.py recipes/plans/multi30k.toml recipes/plans/tatoeba_de_en.toml
    python recipes/sweep.py recipes/plans/multi30k.toml --jobs 12 --gpus 1 --results results
    python recipes/sweep.py recipes/plans/depth.toml --only '.*-3_3-.*'

Each training is a process with the lowest priority and one thread; its result is a JSON file, and what has one is not
trained again. A training that was stopped resumes from its last checkpoint. The final trainings of a system begin when
its grid is complete, with the combination that has the lowest validation loss.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))
from plans import Plan, Run  # the folder is on the path by the line above
from recipe_step import languages_of, run_step, safe_environment, say, write_json

from fairseq_compat import UserError, checkpoints
from fairseq_compat.patches.training import DIVERGED
from fairseq_compat.process import processor_facts
from fairseq_compat.versions import recorded_versions
from fairseq_depthwise.evaluation.checkpoint_summary import summarize
from fairseq_depthwise.evaluation.scores import TranslationMetric
from fairseq_depthwise.evaluation.significance import count_sentences, to_text
from fairseq_depthwise.evaluation.translations import read_lines

HERE = Path(__file__).resolve().parent
PLANS = HERE / "plans"
LAST = "checkpoints/checkpoint_last.pt"
PARTS = "parts.json"
RESULTS = HERE.parent / "docs" / "records" / "protocol"


class Sweep:
    """Makes the missing trainings of some plans, each in a process that a thread waits for."""

    def __init__(self, plans: Sequence[Plan], work: Path, gpus: int, only: re.Pattern[str]) -> None:
        self.plans, self.work, self.gpus, self.only = plans, work, gpus, only
        # A training's thread -> the training, and its place among the jobs, which determines its GPU.
        self.running: dict[Future[None], tuple[Plan, Run, int]] = {}
        self.processes: set[subprocess.Popen[bytes]] = set()
        self.starting = threading.Lock()  # so that no process starts while all are being ended
        self.ended = 0  # the signal that ended the sweep

    def train(self, jobs: int) -> None:
        """Train until nothing is left or a signal comes, which ends the trainings; they resume another time."""
        self.work.mkdir(parents=True, exist_ok=True)
        with open(self.work / ".sweep.lock", "w") as self.lock, ThreadPoolExecutor(jobs) as pool:
            try:
                # Two sweeps would train the same runs in the same folders.
                fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise UserError(f"--work {self.work} is in use by a sweep, or by a training that one left") from error
            # Make the data first: trainings of a recipe run side by side.
            for plan in self.plans:
                prepare(plan, self.work / plan.recipe)
                require_test_sets(plan, self.work / plan.recipe)
            for number in (signal.SIGTERM, signal.SIGINT):
                # Only record the signal: an exception might come between starting a process and recording it.
                signal.signal(number, lambda received, frame: setattr(self, "ended", received))
            try:
                while not self.ended:
                    self.begin_runs(pool, jobs)
                    if not self.running:
                        self.say_untrained()
                        return
                    # A second at most, so that a signal is seen.
                    for future in wait(self.running, timeout=1, return_when=FIRST_COMPLETED).done:
                        del self.running[future]
                        future.result()
            finally:
                # Even if a training has failed: the others must not outlive this program.
                with self.starting:
                    self.ended = self.ended or signal.SIGTERM
                    for process in self.processes:
                        os.killpg(process.pid, signal.SIGTERM)
        say("sweep: stopped; the same command resumes")
        sys.exit(128 + self.ended)

    def begin_runs(self, pool: ThreadPoolExecutor, jobs: int) -> None:
        """Begin trainings until there are as many as ``jobs``, or none can begin."""
        while len(self.running) < jobs:
            begun = self.next_run()
            if begun is None:
                return
            # The lowest free place, so that concurrent trainings are spread over the GPUs.
            place = min(set(range(jobs)) - {place for *_, place in self.running.values()})
            self.running[pool.submit(self.train_one, *begun, place)] = (*begun, place)

    def next_run(self) -> tuple[Plan, Run] | None:
        """Return a training that can begin: one of a grid, or one whose grid is complete."""
        begun = [(plan, run) for plan, run, _ in self.running.values()]
        for plan in self.plans:
            # Ask again each time, because grids grow with their results.
            for run in plan.runs():
                if not self.only.fullmatch(run.name) or (plan, run) in begun or plan.result(run) is not None:
                    continue
                # A final training waits for the best values of its grid.
                if run.values or plan.best(run.system):
                    return plan, run
        return None

    def say_untrained(self) -> None:
        """Name the trainings that were not made, since nobody asked for them or their whole grid has failed."""
        for plan in self.plans:
            untrained = [run.name for run in plan.runs() if plan.result(run) is None]
            if untrained:
                say(f"{plan.results.name}: not trained: {', '.join(untrained)}")

    def train_one(self, plan: Plan, run: Run, place: int) -> None:
        """Train, or resume a training, and write its result."""
        # 1. The command, which resumes an earlier, unfinished training.
        work = self.work / plan.recipe
        # By the plan's digest: a changed plan must not resume trainings of the old one.
        folder = work / "protocol" / plan.digest / run.name
        folder.mkdir(parents=True, exist_ok=True)
        # fairseq resumes from there.
        before = _summary(folder)["updates"] if (folder / LAST).exists() else 0
        say(f"{time.strftime('%H:%M:%S')} {plan.recipe}/{run.name} from update {before}")
        environment = safe_environment({**os.environ, "OMP_NUM_THREADS": "1"})
        if self.gpus:
            environment["CUDA_VISIBLE_DEVICES"] = str(place % self.gpus)
        # A final training has the best values of its system's grid.
        tuned = run if run.values else plan.best(run.system)
        values = dict(tuned.values or ()) if tuned else {}
        command = plan.command(run, values, work, folder, on_gpu=self.gpus > 0)

        # 2. Train, and record the seconds of this part.
        commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=HERE, capture_output=True, text=True)
        parts = begin_part(folder, before, commit.stdout.strip())
        status, seconds = self.run(command, folder, environment)
        parts[-1]["seconds"] = round(seconds, 1)
        # Even after a signal: the seconds of a stopped training count.
        write_json(folder / PARTS, parts, indent=None)
        # A training that was stopped has no result; it resumes another time.
        if self.ended:
            return

        # 3. Write the result: what was trained, where and how, with losses, and scores of a final training.
        result: dict[str, Any] = {
            "plan": plan.digest,
            "system": run.system,
            "seed": run.seed,
            "values": values,
            "commit": parts[-1]["commit"],
            "versions": recorded_versions(),
            "from_update": before,
            # Without "python -m fairseq_depthwise" and this machine's folders.
            "command": " ".join(command[3:]).replace(str(self.work), "WORK"),
            "processor": processor_facts().get("model name"),
            "gpus": self.gpus,
            "seconds": seconds_of(parts),
            "parts": parts,
        }
        if status:
            last_line = (folder / "output.log").read_text(errors="replace").strip().rpartition("\n")[2][:300]
            # A training that diverged is a result; a full disk is not.
            if DIVERGED not in last_line:
                raise UserError(f"{plan.recipe}/{run.name} has status {status}; the same command resumes: {last_line}")
            result["failed"] = last_line
        else:
            result |= measured(folder)
            # Only final trainings see the test sets; the grid chooses by validation loss.
            if run.values is None:
                result |= self.scored(plan, work, folder, environment)
        plan.results.mkdir(parents=True, exist_ok=True)
        write_json(plan.results / f"{run.name}.json", result, indent=None)
        # Only final trainings are translated with; those of the grid would fill the disk.
        if run.values and not status:
            shutil.rmtree(folder / "checkpoints")  # made by this program
        say(f"{time.strftime('%H:%M:%S')} {plan.recipe}/{run.name}: {result.get('failed') or result['valid'][-1]}")

    def run(self, command: list[str], folder: Path, environment: dict[str, str]) -> tuple[int, float]:
        """Run a command that a signal to the sweep ends; return its status and the processor's seconds."""
        with self.starting, (folder / "output.log").open("ab") as log:
            if self.ended:
                return 0, 0.0
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A group of its own, which can be ended as a whole and which Ctrl-C does not reach.
                start_new_session=True,
                pass_fds=(self.lock.fileno(),),  # so that the lock is held as long as the training runs
            )
            self.processes.add(process)
            # Linux may share the CPU among sessions first, and obey priorities only within a session.
            group = Path(f"/proc/{process.pid}/autogroup")
            if group.exists():
                group.write_text(str(os.nice(0)))
        # Wait without collecting the process; that is done below, under the lock.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with self.starting:  # as long as it is not collected, no other process gets its number
            self.processes.remove(process)
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        return process.returncode, usage.ru_utime + usage.ru_stime

    def scored(self, plan: Plan, work: Path, folder: Path, environment: dict[str, str]) -> dict[str, Any]:
        """Translate the test sets with the last checkpoint, and score them each and together."""
        source, target = languages_of(work / "data-bin")
        metrics = [TranslationMetric(name) for name in plan.metrics]
        command = [sys.executable, "-m", "fairseq_depthwise", "translate", f"{folder}/{LAST}"]
        command += ["--beam", str(plan.table.beam), "--lenpen", str(plan.table.lenpen), "--force"]
        scores: dict[str, float] = {}
        signatures: dict[str, str] = {}
        translations: list[str] = []
        references: list[str] = []
        for test in plan.table.tests:
            text, output = work / "text" / f"test.{test}.raw", folder / f"{test}.txt"
            status, _ = self.run([*command, f"{text}.{source}", "--output", str(output)], folder, environment)
            if status:
                raise UserError(f"{test} was not translated; the end of {folder}/output.log says why")
            translations_of_test = read_lines(str(output))
            references_of_test = read_lines(f"{text}.{target}")
            scores[test] = metrics[0].score(translations_of_test, [references_of_test]).score
            # The plan's score is over all test sets together.
            translations += translations_of_test
            references += references_of_test
        for metric in metrics:
            score = metric.score(translations, [references])
            scores[metric.name] = score.score
            signatures[metric.name] = score.signature
        result: dict[str, Any] = {"scores": scores, "signatures": signatures}
        # Counts of n-grams, so that a bootstrap does not need the text.
        if metrics[0].name == "sacrebleu":
            result["sentences"] = to_text(count_sentences(metrics[0], translations, references))
        return result


def begin_part(folder: Path, from_update: int, commit: str) -> list[dict[str, Any]]:
    """Return the parts of a training that was stopped and resumes, with the one that begins now.

    The seconds of a part are None until it has ended, and stay so if this program is killed before.
    """
    path = folder / PARTS
    parts: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    parts.append({"from_update": from_update, "commit": commit, "seconds": None})
    write_json(path, parts, indent=None)
    return parts


def seconds_of(parts: Sequence[dict[str, Any]]) -> float | None:
    """Return the processor's seconds of a whole training; None where those of a part are not known.

    Updates that a stop lost, fewer than between two checkpoints, are in them twice.
    """
    seconds = [part["seconds"] for part in parts]
    if None in seconds or parts[0]["from_update"] != 0:
        return None
    return round(sum(seconds), 1)


def prepare(plan: Plan, work: Path) -> None:
    """Make the recipe's data, and beside them ``protocol-bin``, whose second validation set is training sentences.

    Data that are there already may be distill.sh's.
    """
    if not (work / "data-bin").exists():
        environment = {"PYTHON": sys.executable, **os.environ, "WORK": str(work)}
        script = str(HERE / plan.recipe / "prepare.sh")
        if subprocess.run(["bash", script], env=environment, stdout=sys.stderr).returncode:
            raise UserError(f"{script} failed; what it printed above says why")
    data, unfinished = work / "protocol-bin", work / "protocol-bin.unfinished"
    if data.exists():
        return
    source, target = languages_of(work / "data-bin")
    # The first 1,000 pairs of the training set, as a second validation set.
    for language in (source, target):
        # fairseq-preprocess will call this second validation set valid1.
        lines = (work / f"text/bpe.train.{language}").read_bytes().split(b"\n")[:1000]
        (work / f"seen.{language}").write_bytes(b"".join(line + b"\n" for line in lines))
    shutil.rmtree(unfinished, ignore_errors=True)  # of a sweep that was killed here
    command = [sys.executable, str(HERE / "lib" / "preprocess.py"), "--joined-dictionary", "--destdir", str(unfinished)]
    command += ["--source-lang", source, "--target-lang", target, "--srcdict", f"{work}/data-bin/dict.{source}.txt"]
    command += ["--trainpref", f"{work}/text/bpe.train", "--validpref", f"{work}/text/bpe.valid,{work}/seen"]
    if subprocess.run(command, stdout=subprocess.DEVNULL).returncode:
        raise UserError("fairseq-preprocess failed; what it printed above says why")
    unfinished.rename(data)


def require_test_sets(plan: Plan, work: Path) -> None:
    """Raise UserError unless all test sets of a plan are there, which are translated after the trainings only."""
    source, target = languages_of(work / "data-bin")
    for test in plan.table.tests:
        for language in (source, target):
            path = work / "text" / f"test.{test}.raw.{language}"
            if not path.exists():
                raise UserError(f"the plan {plan.results.name} has the test set {test!r}, but {path} does not exist")


def measured(folder: Path) -> dict[str, Any]:
    """Return size and losses (bits a token, by update) of a training, from its log and last checkpoint."""
    valid: dict[int, float] = {}
    seen: dict[int, float] = {}
    for line in (folder / "train.log").read_text(encoding="utf-8").splitlines():
        if not line.startswith("{") or "_nll_loss" not in line:
            continue
        entry = json.loads(line)
        # If an update was repeated after a stop, the later loss counts.
        for subset, losses in (("valid", valid), ("valid1", seen)):
            if f"{subset}_nll_loss" in entry:
                losses[int(entry[f"{subset}_num_updates"])] = float(entry[f"{subset}_nll_loss"])
    summary = _summary(folder)
    return {
        "parameters": summary["parameters"],
        "updates": summary["updates"],
        "valid": sorted(valid.items()),
        "seen": sorted(seen.items()),
    }


def _summary(folder: Path) -> dict[str, Any]:
    return summarize(checkpoints.load_checkpoint(folder / LAST, mapped=True), str(folder / LAST))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plans", nargs="+", type=Path, metavar="PLAN", help="a TOML file of recipes/plans")
    parser.add_argument("--work", type=Path, default=Path("runs/sweep"), help="where trainings keep their files")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder (default: docs/records/protocol)")
    parser.add_argument(
        "--jobs", type=int, choices=range(1, 100), default=1, metavar="N", help="trainings at a time (default: 1)"
    )
    parser.add_argument("--gpus", type=int, default=0, help="that the trainings share (default: 0, the CPU)")
    parser.add_argument("--only", default=".*", metavar="REGEX", help="trainings whose whole name matches")
    parser.add_argument("--nice", type=int, default=19, help="0 to 19; 19 is the lowest priority (default)")
    options = parser.parse_args()
    plans = [Plan(path, options.results) for path in options.plans]
    try:
        only = re.compile(options.only)
    except re.error as error:
        raise UserError(f"--only {options.only} is not a regular expression, such as '.*-seed1': {error}") from error
    # The trainings inherit it.
    os.nice(options.nice)
    Sweep(plans, options.work, options.gpus, only).train(options.jobs)


if __name__ == "__main__":
    run_step(main)
