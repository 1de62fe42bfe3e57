"""Measure the time of a training update at each depth of a plan's growing models, and the training time growing saves.

    python benchmarks/update_time.py recipes/plans/stages.toml --work runs/sweep

Each round trains every depth for ``--updates`` updates, with the plan's own command and data, after 10 that are not
counted; rounds rotate the order. Run it on an otherwise idle machine. Not measured: growing itself, the new optimizer,
validation, saving and start-up. Writes the record ``update_time_PLAN``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import records
import sweep
from plans import Plan, Run
from recipe_step import run_step
from turns import extent, ratios, take_turns

from fairseq_compat import UserError
from fairseq_depthwise.growth.stages import parse_stages
from fairseq_depthwise.tables import Table

#: Updates from one line of the training log to the next.
INTERVAL = 10

#: System -> training time saved by the closest model of the paper.
PUBLISHED_SAVINGS = {"sdt-stages": "31.5% (Sdt-RPR-24L, Table 1)"}


def main() -> None:
    """Measure all depths in turn, and write the record."""
    parser = records.make_parser(__doc__)
    parser.add_argument("plan", type=Path, metavar="PLAN", help="a TOML file of recipes/plans")
    parser.add_argument(
        "--work", type=Path, default=Path("runs/sweep"), help="folder of the sweep's data (default: %(default)s)"
    )
    parser.add_argument(
        "--updates", type=records.integer(10), default=40, help="updates in a round (default: %(default)s)"
    )
    parser.add_argument("--rounds", type=records.integer(1), default=3, help="number of rounds (default: %(default)s)")
    options = parser.parse_args()
    plan = Plan(options.plan, sweep.RESULTS)
    data_folder = options.work / plan.recipe
    sweep.prepare(plan, data_folder)

    # Any grid point will do: hyperparameters such as the learning rate do not change the time of an update.
    values = {axis: choices[0] for axis, choices in plan.axes.items()}
    commands: dict[str, Sequence[str]] = {}
    updates: dict[str, dict[str, int]] = {}
    for system in plan.systems:
        run = Run(system, seed=1)
        commands[system] = plan.command(run, values, work=data_folder, folder=data_folder, on_gpu=False)
        updates[system] = updates_by_depth(plan, commands[system])

    # The command of a model without growth: --encoder-layers can be overridden.
    fixed_depth = next(system for system, depths in updates.items() if len(depths) == 1)

    # Depths are strings: keys of JSON, words of a command.
    all_depths: set[str] = set().union(*updates.values())
    measurements = {}
    for depth in sorted(all_depths, key=int):
        # A model that has grown to a depth takes as long as one that was built with it.
        measurements[depth] = partial(measure_update, commands[fixed_depth], depth, options.updates)
    seconds = take_turns(measurements, options.rounds, warm_up=0)

    setup = records.describe_setup(
        "update_time",
        sys.argv[1:],
        base=plan.content["primary"]["base"],
        processes_running_and_waiting=os.getloadavg(),  # the load average, under its name in earlier records
    )
    record = {"setup": setup, "seconds": seconds, "updates": updates}
    records.write_and_print(options.records, f"update_time_{options.plan.stem}", record)


def updates_by_depth(plan: Plan, command: Sequence[str]) -> dict[str, int]:
    """Return how many updates a training makes at each depth of its encoder, from the command that trains it."""
    # Pairs up neighbors: flags without a value get a wrong entry, which is never read.
    options = dict(pairwise(command))
    total: int = plan.content["updates"]["final"]
    if "--growth-stages" not in options:
        return {options["--encoder-layers"]: total}
    strategy = options.get("--growth-strategy", "top-most")
    updates = {}
    for stage in parse_stages(options["--growth-stages"], strategy=strategy).stages:
        # The last stage lasts as long as the training.
        length = total - sum(updates.values()) if stage.length is None else stage.length
        updates[str(stage.layers)] = length
    return updates


def measure_update(command: Sequence[str], layers: str, updates: int) -> float:
    """Train at a depth and return the mean seconds of an update, without the first ``INTERVAL`` updates."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "train.log"
        # fairseq takes the last occurrence of a repeated option.
        words = [*command, "--encoder-layers", layers, "--max-update", str(updates + INTERVAL)]
        words += ["--log-interval", str(INTERVAL), "--log-file", str(log), "--save-dir", folder]
        words += ["--no-save", "--disable-validation"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # as the sweep trains
        status = subprocess.run(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if status.returncode:
            raise UserError(f"the training with {layers} layers failed: {status.stderr.strip()[-300:]}")
        lines = log.read_text(encoding="utf-8").splitlines()
    entries = [json.loads(line) for line in lines if line.startswith("{") and '"wps"' in line]
    measured = entries[1 : 1 + updates // INTERVAL]  # the first interval is warm-up
    # wpb / wps (target tokens per update / per second) is more precise than the logged times.
    return fmean(float(entry["wpb"]) / float(entry["wps"]) for entry in measured)


def make_tables(record: records.Record) -> dict[str, Table]:
    """Return two tables: the time of an update at each depth; the training time that each system takes and saves."""
    seconds_column = "seconds of an update: median (lowest to highest)"
    depths = Table("encoder layers", seconds_column)
    for depth, seconds in record["seconds"].items():
        low, middle, high = extent(seconds)
        depths.add({"encoder layers": depth, seconds_column: f"{middle:.3f} ({low:.3f} to {high:.3f})"})

    base = record["setup"]["base"]
    saved_column = f"time saved against `{base}`"
    saved = Table("system", "updates at each depth", "hours", saved_column, "published")
    for system, updates in record["updates"].items():
        seconds = _estimate_training_time(record, system)
        _, middle, _ = extent(seconds)
        row = {
            "system": f"`{system}`",
            "updates at each depth": ", ".join(f"{number:,} of {depth} layers" for depth, number in updates.items()),
            "hours": f"{middle / 3600:.2f}",
            "published": PUBLISHED_SAVINGS.get(system, ""),
        }
        if system != base:
            shares = [1 - ratio for ratio in ratios(seconds, _estimate_training_time(record, base))]
            low, middle, high = extent(shares)
            row[saved_column] = f"{middle:.1%} ({low:.1%} to {high:.1%})"
        saved.add(row)
    return {"depths": depths, "saved": saved}


def _estimate_training_time(record: records.Record, system: str) -> list[float]:
    """Return, for each round, the estimated time of a full training: sum over depths of updates x update time."""
    updates: Mapping[str, int] = record["updates"][system]
    update_seconds: Mapping[str, Sequence[float]] = record["seconds"]  # depth -> seconds of an update in each round

    # The time that a training spends at each depth it has, in each round.
    seconds_at_depths = []
    for depth, count in updates.items():
        seconds_at_depths.append([count * seconds for seconds in update_seconds[depth]])
    return [sum(seconds_of_round) for seconds_of_round in zip(*seconds_at_depths, strict=True)]


if __name__ == "__main__":
    run_step(main)
