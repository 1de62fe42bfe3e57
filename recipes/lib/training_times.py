"""Hours that a recipe's systems were trained for, and the share saved against a baseline, as shallow-to-deep's tables.

What counts as hours: :mod:`fairseq_depthwise.reports.training_hours`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from recipe_step import run_folder
from result_tables import ResultTable

from fairseq_compat import UserError
from fairseq_depthwise.reports.training_hours import TrainingTime, share_saved, training_time, why_not_comparable
from fairseq_depthwise.reports.training_log import read_run


def training_times(system: str, baselines: Sequence[str], seeds: Sequence[str]) -> list[dict[str, Any]]:
    """Return how long each seed's training took, beside the nearest of the baselines that was trained with that seed.

    A seed whose log has no hours has its name alone.
    """
    runs = []
    for seed in seeds:
        run: dict[str, Any] = {"seed": seed}
        runs.append(run)
        time = _time_of(run_folder(os.environ, system, seed))
        if time is None:
            continue
        run |= _described(time)
        # The nearest baseline with a log is the one to compare with.
        for baseline in baselines:
            other = _time_of(run_folder(os.environ, baseline, seed))
            if other is not None:
                run["baseline"] = {"system": baseline, **_described(other)}
                run["saved"] = share_saved(time, other)
                run["not_comparable"] = why_not_comparable(time, other)
                break
    return runs


def _described(time: TrainingTime) -> dict[str, Any]:
    return {**asdict(time), "trained_on": time.machine}


def _time_of(folder: Path) -> TrainingTime | None:
    """Return how long a run was trained; None if there is no log, or none with hours."""
    log = folder / "train.log"
    if not log.exists():
        return None
    try:
        return training_time(read_run(str(log)))
    except UserError:  # no update has been logged
        return None


def times_table(runs: Sequence[dict[str, Any]]) -> str:
    """Return hours and shares saved as a table with notes; runs are those of :func:`training_times`."""
    table = ResultTable("seed", "hours", "trained on", "updates", "saved", "baseline", "its hours", "its updates")
    notes = []
    timed = [run for run in runs if "hours" in run]
    for run in runs:
        seed = run["seed"]
        if "hours" not in run:
            notes.append(f"seed {seed}: no hours, as its train.log is missing or has no seconds of training")
            continue
        row = {"seed": seed, "hours": f"{run['hours']:.4g}", "trained on": run["trained_on"]}
        row["updates"] = f"{run['updates']:,}"
        if "baseline" in run:
            baseline = run["baseline"]
            row |= {"baseline": baseline["system"], "its hours": f"{baseline['hours']:.4g}"}
            row["its updates"] = f"{baseline['updates']:,}"
        if run.get("saved") is not None:
            row["saved"] = f"{run['saved']:.1%}"
        table.add(row)
        if not run["ended"]:
            notes.append(f"seed {seed}: its training has not ended")
        elif run.get("not_comparable"):
            notes.append(f"seed {seed}: no share saved: {run['not_comparable']}")

    if len(timed) > 1:
        hours = [run["hours"] for run in timed]
        row = {"seed": "mean", "hours": f"{fmean(hours):.4g} ± {stdev(hours):.2g}"}
        shares = [run["saved"] for run in timed if run.get("saved") is not None]
        if shares:
            row["saved"] = f"{fmean(shares):.1%}"
        table.add(row)
    text = "".join(f"{note}\n" for note in notes)
    if not timed:
        return text
    meaning = "hours: of all GPUs, or of all processes on a CPU, in training steps; saved: of the baseline's hours"
    return f"{table.text()}\n{text}{meaning}\n"
