"""Where a training of a recipe keeps its files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from fairseq_compat import UserError


def run_folder(environment: Mapping[str, str], system: str, seed: str | None = None) -> Path:
    """Return ``WORK/systems/SYSTEM``, with ``-seedN`` for other seeds than 1.

    Raises:
        UserError: ``SEED`` is no number.
    """
    seed = seed or environment.get("SEED") or "1"
    if not seed.isdecimal():
        raise UserError(f"SEED={seed} is not a whole number")
    name = system if int(seed) == 1 else f"{system}-seed{int(seed)}"
    return Path(environment["WORK"]) / "systems" / name


def seeds_of(work: Path, system: str) -> list[str]:
    """Return the seeds that a system was trained with, in order."""
    folder = work / "systems"
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    matches = [re.fullmatch(re.escape(system) + r"(?:-seed(\d+))?", name) for name in names]
    return sorted((match[1] or "1" for match in matches if match), key=int)


def languages_of(data: Path) -> tuple[str, str]:
    """Return source and target language of binarized data.

    Raises:
        UserError: the folder has no training data of one pair.
    """
    pairs = {path.name.split(".")[1] for path in data.glob("train.*-*.*.idx")}
    if len(pairs) != 1:
        raise UserError(f"{data} has training data of {len(pairs)} language pairs; one is needed: prepare it again")
    source, _, target = pairs.pop().partition("-")
    return source, target
