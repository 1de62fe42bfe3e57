"""Which files a model needs: its checkpoints, and what their training read, which may have been moved since."""

from __future__ import annotations

import os
from collections.abc import Iterator
from glob import glob
from pathlib import Path

from fairseq_compat import UserError

#: The checkpoint that a folder stands for.
BEST = "checkpoint_best.pt"

#: The file that an exported folder has in its place, with ``--format safetensors``.
WEIGHTS = "model.safetensors"


def checkpoint_files(model: str) -> list[str]:
    """Return the files of a model: one, or several joined with ``:``, an ensemble; a folder stands for its best one."""
    files = []
    for part in model.split(os.pathsep):
        if not part:
            raise UserError(f"MODEL {model!r} has an empty name in it; give checkpoints joined with {os.pathsep}")
        if not os.path.exists(part):
            raise UserError(f"{part} does not exist; give a checkpoint, or a folder that has {BEST}")
        file = os.path.join(part, BEST) if os.path.isdir(part) else part
        if not os.path.isfile(file) and os.path.isfile(os.path.join(part, WEIGHTS)):
            file = os.path.join(part, WEIGHTS)
        if not os.path.isfile(file):
            others = ", ".join(sorted(glob("*.pt", root_dir=part))[:5]) or "none that ends in .pt"
            raise UserError(f"{part} has no {BEST}; give one of its files ({others})")
        files.append(file)
    return files


def data_folder(recorded: str | None, checkpoint: str) -> str:
    """Return the folder of data that a training was given, where it is now.

    Of several folders joined with ``:`` the first has the dictionaries.
    """
    if not recorded:
        raise UserError(f"{checkpoint} does not say what data it was trained with; name the folder with --data")
    first = str(recorded).split(os.pathsep)[0]
    for candidate in _places(first, checkpoint):
        if os.path.isdir(candidate):
            return candidate
    raise UserError(
        f"{checkpoint} was trained with the data in {first}, and no such folder is here or beside the checkpoint; name "
        "the folder with the dictionaries with --data"
    )


def moved_file(recorded: str, checkpoint: str, data: str, option: str) -> str:
    """Return a file that a training was given with an option, where it is now: perhaps in or beside the data."""
    name = os.path.basename(recorded)
    beside = [os.path.join(data, name), os.path.join(os.path.dirname(os.path.abspath(data)), name)]
    for candidate in [*_places(recorded, checkpoint), *beside]:
        if os.path.isfile(candidate):
            return candidate
    raise UserError(
        f"{checkpoint} was trained with {option} {recorded}, and no such file is here or beside the data; name it with "
        f"{option}"
    )


def _places(path: str, checkpoint: str) -> Iterator[str]:
    """Yield a path as it is; if relative, also from the checkpoint's folder and from those above."""
    yield path
    if not os.path.isabs(path):
        yield from (str(folder / path) for folder in Path(os.path.abspath(checkpoint)).parents)
