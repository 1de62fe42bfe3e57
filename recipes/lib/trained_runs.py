"""Trainings of a recipe's system that are on the disk: their seeds, and the checkpoint that is evaluated."""

from __future__ import annotations

import functools
import os
import re
from dataclasses import replace
from pathlib import Path

from made_of import digests, is_made_of, making
from recipe_step import run_folder, say, whole_number
from systems import System, Training

from fairseq_compat import UserError
from fairseq_depthwise.checkpoints import averaging
from fairseq_depthwise.checkpoints.checkpoint import Checkpoint
from fairseq_depthwise.checkpoints.sizes import depths_in


def seeds_to_evaluate(work: Path, system: str) -> list[str]:
    """Return the seeds that ``SEEDS`` or ``SEED`` names, else all that the system was trained with."""
    named = os.environ.get("SEEDS") or os.environ.get("SEED") or ""
    seeds = named.split() or trained_seeds(work, system)
    if not seeds:
        raise UserError(f"{work / 'systems'} has no {system}; train it first")
    folders = {run_folder(os.environ, system, seed) for seed in seeds}
    if len(folders) < len(seeds):
        raise UserError(f"SEEDS={' '.join(seeds)} has a seed twice; give it once")
    return seeds


def trained_seeds(work: Path, system: str) -> list[str]:
    """Return the seeds that a system was trained with, in order."""
    pattern = re.compile(re.escape(system) + r"(?:-seed(\d+))?")
    seeds = []
    for path in (work / "systems").glob(f"{system}*"):
        # The glob also matches other systems whose names start with this one.
        match = pattern.fullmatch(path.name)
        if match:
            seeds.append(match[1] or "1")
    return sorted(seeds, key=int)


def with_average(system: System) -> System:
    """Return the system, with the number of averaged checkpoints of ``AVERAGE`` if it is set."""
    average = whole_number(os.environ, "AVERAGE", system.training.average, lowest=0)
    return replace(system, training=replace(system.training, average=average))


def average_suffix() -> str:
    """Return the suffix of names of results, which are separate for each value of ``AVERAGE``."""
    average = os.environ.get("AVERAGE")
    return f"-average{int(average)}" if average else ""


def results_of(folder: Path) -> Path:
    """Return the folder of a run's translations."""
    return folder / f"evaluation{average_suffix()}"


def checkpoint_of(system: System, folder: Path) -> Path:
    """Return the checkpoint that is evaluated: the average of the last ones, or the best on the validation set."""
    best = folder / "checkpoints" / "checkpoint_best.pt"
    if not best.parent.is_dir() or not (system.training.average or best.exists()):
        raise UserError(f"{best} does not exist; train the system first")
    # An average of 0 stands for the best checkpoint on the validation set.
    return average_of(system.training, folder, best) if system.training.average else best


def average_of(training: Training, folder: Path, best: Path) -> Path:
    """Average a training's last checkpoints, unless that has been done."""
    open_checkpoint = functools.cache(Checkpoint.open)
    saved = [open_checkpoint(path) for path in averaging.saved_checkpoints(str(best.parent), open_checkpoint)]
    # Some papers leave out what was trained after the best checkpoint on the validation set.
    if training.up_to_best and best.exists():
        best_update = open_checkpoint(str(best)).updates
        saved = [checkpoint for checkpoint in saved if checkpoint.updates <= best_update]

    # A growing model has fewer parameters in earlier checkpoints; only those of the last depth can be averaged.
    last = saved[-training.average :]
    depths = [depths_in(checkpoint.parameters) for checkpoint in last]
    last = [checkpoint for checkpoint, depth in zip(last, depths, strict=True) if depth == depths[-1]]
    if not last:
        raise UserError(f"{best.parent} has no checkpoint of an epoch or of a number of updates yet; train longer")
    if len(last) < training.average:
        say(f"averaging the {len(last)} checkpoints of the last depth in {best.parent}, not {training.average}")

    # Each value of AVERAGE has its own file.
    average = folder / f"average{average_suffix().removeprefix('-average')}.pt"
    inputs = digests([checkpoint.path for checkpoint in last])
    if not is_made_of(average, inputs):
        with making(average, inputs):
            averaging.average(last).write(average)
    return average
