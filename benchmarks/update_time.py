"""Seconds of an update at each depth of a plan's growing systems, and the share of training time that growing saves.

    python benchmarks/update_time.py recipes/plans/stages.toml --work runs/sweep

Each depth is trained by the plan's own command, on its data, for some updates in each round; the depths take turns. The
first updates of a round do not count. To be run on a quiet machine. Growing itself, the new optimizer, validation,
saving and start-up are left out. Writes the record ``update_time_PLAN``.
"""

from __future__ import annotations

import argparse
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

from fairseq_compat import UserError
from fairseq_depthwise.growth.stages import parse_stages
from fairseq_depthwise.tables import Table

sys.path += [str(Path(__file__).resolve().parents[1] / folder) for folder in ("recipes", "recipes/lib")]
import sweep  # the folders are on the path by the line above
from plans import Plan, Run

#: Updates between two lines of a log.
INTERVAL = 10

#: System of a plan -> the paper's number for what is nearest to it.
PUBLISHED = {"sdt-stages": "31.5% (Sdt-RPR-24L, Table 1)"}


def updates_by_depth(plan: Plan, command: Sequence[str]) -> dict[str, int]:
    """Return how many updates a training makes at each depth of its encoder, from the command that trains it."""
    options = dict(pairwise(command))
    total: int = plan.content["updates"]["final"]
    if "--growth-stages" not in options:
        return {options["--encoder-layers"]: total}
    strategy = options.get("--growth-strategy", "top-most")
    updates = {}
    for stage in parse_stages(options["--growth-stages"], strategy=strategy).stages:
        length = total - sum(updates.values()) if stage.length is None else stage.length
        updates[str(stage.layers)] = length
    return updates


def seconds_of_update(command: Sequence[str], layers: str, updates: int) -> float:
    """Train at a depth and return the mean seconds of an update, the first ``INTERVAL`` ones left out."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "train.log"
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


def run(options: argparse.Namespace, given: Sequence[str]) -> None:
    """Measure all depths in turns, and write the record."""
    plan = Plan(options.plan, sweep.RESULTS)
    work = options.work / plan.recipe
    sweep.prepare(plan, work)
    commands = {
        system: plan.command(Run(system, 1), {axis: values[0] for axis, values in plan.axes.items()}, work, work, False)
        for system in plan.systems
    }
    updates = {system: updates_by_depth(plan, command) for system, command in commands.items()}
    depths = sorted({depth for stages in updates.values() for depth in stages}, key=int)
    still = next(commands[system] for system, stages in updates.items() if len(stages) == 1)
    works = {depth: partial(seconds_of_update, still, depth, options.updates) for depth in depths}
    seconds = records.take_turns(works, options.rounds, warm_up=0)
    facts = {"base": plan.content["primary"]["base"], "processes_running_and_waiting": os.getloadavg()}
    setup = records.setup_of("update_time", given, **facts)
    name = f"update_time_{options.plan.stem}"
    records.finish(options.records, name, {"setup": setup, "seconds": seconds, "updates": updates})


def tables(record: records.Record) -> dict[str, Table]:
    """Return the seconds of an update at each depth, and the time that each system takes and saves."""
    depths = Table("encoder layers", "seconds of an update: median (lowest to highest)")
    for depth, seconds in record["seconds"].items():
        low, middle, high = records.extent(seconds)
        depths.add(dict(zip(depths.columns, (depth, f"{middle:.3f} ({low:.3f} to {high:.3f})"), strict=True)))
    base = record["setup"]["base"]
    saved_column = f"time saved against `{base}`"
    saved = Table("system", "updates at each depth", "hours", saved_column, "published")
    seconds_of_base = _seconds_by_round(record, base)
    for system, updates in record["updates"].items():
        seconds = _seconds_by_round(record, system)
        _, median, _ = records.extent(seconds)
        row = {
            "system": f"`{system}`",
            "updates at each depth": ", ".join(f"{number:,} of {depth} layers" for depth, number in updates.items()),
            "hours": f"{median / 3600:.2f}",
            "published": PUBLISHED.get(system, ""),
        }
        if system != base:
            shares = [1 - ratio for ratio in records.ratios(seconds, seconds_of_base)]
            low, middle, high = records.extent(shares)
            row[saved_column] = f"{middle:.1%} ({low:.1%} to {high:.1%})"
        saved.add(row)
    return {"depths": depths, "saved": saved}


def _seconds_by_round(record: records.Record, system: str) -> list[float]:
    """Return the seconds of a whole training, by the seconds of an update in each round."""
    updates: Mapping[str, int] = record["updates"][system]
    rounds = range(len(next(iter(record["seconds"].values()))))
    seconds = []
    for number in rounds:
        of_depths = [count * record["seconds"][depth][number] for depth, count in updates.items()]
        seconds.append(sum(of_depths))
    return seconds


def parse_options(given: Sequence[str]) -> argparse.Namespace:
    """Parse the options."""
    parser = records.make_parser(__doc__)
    parser.add_argument("plan", type=Path, metavar="PLAN", help="a TOML file of recipes/plans")
    parser.add_argument("--work", type=Path, default=Path("runs/sweep"), help="where the sweep has its data")
    parser.add_argument("--updates", type=records.integer(10), default=40, help="of a round (default: %(default)s)")
    parser.add_argument("--rounds", type=records.integer(1), default=3, help="(default: %(default)s)")
    return parser.parse_args(given)


if __name__ == "__main__":
    sys.exit(records.run_program("update_time", parse_options, run, None))
