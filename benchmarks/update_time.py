"""Seconds of an update at each depth of a plan's growing systems, and the share of training time that growing saves.

    python benchmarks/update_time.py recipes/plans/stages.toml --work runs/sweep

Each depth is trained by the plan's own command, on its data, for some updates in each round; the depths take turns. The
first updates of a round do not count. To be run on a quiet machine. Growing itself, the new optimizer, validation,
saving and start-up are left out. Writes the record ``update_time_PLAN``.
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

#: Updates between two lines of a log.
INTERVAL = 10

#: System of a plan -> the paper's number for what is nearest to it.
PUBLISHED = {"sdt-stages": "31.5% (Sdt-RPR-24L, Table 1)"}


def main() -> None:
    """Measure all depths in turns, and write the record."""
    parser = records.make_parser(__doc__)
    parser.add_argument("plan", type=Path, metavar="PLAN", help="a TOML file of recipes/plans")
    parser.add_argument("--work", type=Path, default=Path("runs/sweep"), help="where the sweep has its data")
    parser.add_argument("--updates", type=records.integer(10), default=40, help="of a round (default: %(default)s)")
    parser.add_argument("--rounds", type=records.integer(1), default=3, help="(default: %(default)s)")
    options = parser.parse_args()
    plan = Plan(options.plan, sweep.RESULTS)
    work = options.work / plan.recipe
    sweep.prepare(plan, work)

    # The rate does not change how long an update takes.
    values = {axis: of_axis[0] for axis, of_axis in plan.axes.items()}
    commands = {}
    updates = {}
    for system in plan.systems:
        commands[system] = plan.command(Run(system, 1), values, work, work, on_gpu=False)
        updates[system] = updates_by_depth(plan, commands[system])
    # A command whose number of layers can be replaced by another.
    not_growing = next(commands[system] for system, of_system in updates.items() if len(of_system) == 1)

    depths = sorted({depth for of_system in updates.values() for depth in of_system}, key=int)
    works = {depth: partial(seconds_of_update, not_growing, depth, options.updates) for depth in depths}
    seconds = take_turns(works, options.rounds, warm_up=0)
    facts = {"base": plan.content["primary"]["base"], "processes_running_and_waiting": os.getloadavg()}
    setup = records.setup_of("update_time", sys.argv[1:], **facts)
    record = {"setup": setup, "seconds": seconds, "updates": updates}
    records.finish(options.records, f"update_time_{options.plan.stem}", record)


def updates_by_depth(plan: Plan, command: Sequence[str]) -> dict[str, int]:
    """Return how many updates a training makes at each depth of its encoder, from the command that trains it."""
    # Options of one word have the next option for a value, which nobody asks for.
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


def seconds_of_update(command: Sequence[str], layers: str, updates: int) -> float:
    """Train at a depth and return the mean seconds of an update, the first ``INTERVAL`` ones left out."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "train.log"
        # Of an option that is given twice fairseq takes the last.
        words = [*command, "--encoder-layers", layers, "--max-update", str(updates + INTERVAL)]
        words += ["--log-interval", str(INTERVAL), "--log-file", str(log), "--save-dir", folder]
        words += ["--no-save", "--disable-validation"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # as the sweep trains
        status = subprocess.run(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if status.returncode:
            raise UserError(f"the training with {layers} layers failed: {status.stderr.strip()[-300:]}")
        lines = log.read_text(encoding="utf-8").splitlines()
    entries = [json.loads(line) for line in lines if line.startswith("{") and '"wps"' in line]
    # Target tokens an update by target tokens a second, which have more digits than fairseq's seconds and updates.
    seconds = [float(entry["wpb"]) / float(entry["wps"]) for entry in entries[1 : 1 + updates // INTERVAL]]
    return fmean(seconds)


def tables(record: records.Record) -> dict[str, Table]:
    """Return the seconds of an update at each depth, and the time that each system takes and saves."""
    seconds_column = "seconds of an update: median (lowest to highest)"
    depths = Table("encoder layers", seconds_column)
    for depth, seconds in record["seconds"].items():
        low, middle, high = extent(seconds)
        depths.add({"encoder layers": depth, seconds_column: f"{middle:.3f} ({low:.3f} to {high:.3f})"})

    base = record["setup"]["base"]
    saved_column = f"time saved against `{base}`"
    saved = Table("system", "updates at each depth", "hours", saved_column, "published")
    for system, updates in record["updates"].items():
        seconds = _seconds_by_round(record, system)
        _, middle, _ = extent(seconds)
        row = {
            "system": f"`{system}`",
            "updates at each depth": ", ".join(f"{number:,} of {depth} layers" for depth, number in updates.items()),
            "hours": f"{middle / 3600:.2f}",
            "published": PUBLISHED.get(system, ""),
        }
        if system != base:
            shares = [1 - ratio for ratio in ratios(seconds, _seconds_by_round(record, base))]
            low, middle, high = extent(shares)
            row[saved_column] = f"{middle:.1%} ({low:.1%} to {high:.1%})"
        saved.add(row)
    return {"depths": depths, "saved": saved}


def _seconds_by_round(record: records.Record, system: str) -> list[float]:
    """Return the seconds of a whole training, by the seconds of an update in each round."""
    updates: Mapping[str, int] = record["updates"][system]
    of_depths: Mapping[str, Sequence[float]] = record["seconds"]
    rounds = len(next(iter(of_depths.values())))
    seconds = [0.0] * rounds
    for depth, count in updates.items():
        for number in range(rounds):
            seconds[number] += count * of_depths[depth][number]
    return seconds


if __name__ == "__main__":
    run_step(main)
