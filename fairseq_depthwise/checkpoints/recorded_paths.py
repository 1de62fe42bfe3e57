"""Which files a model needs: its checkpoints, and what their training read, which may have been moved since."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from glob import glob

from fairseq_compat import UserError

#: The checkpoint that a folder stands for.
BEST = "checkpoint_best.pt"


def checkpoint_files(model: str) -> list[str]:
    """Return the files of a model: one, or several joined with ``:``, an ensemble; a folder stands for its best one.

    Raises:
        UserError: a file or folder does not exist, or a folder has no ``checkpoint_best.pt``.
    """
    files = []
    for part in model.split(os.pathsep):
        if not part:
            raise UserError(f"MODEL {model!r} has an empty name in it; give checkpoints joined with {os.pathsep}")
        if not os.path.exists(part):
            raise UserError(f"{part} does not exist; give a checkpoint, or a folder that has {BEST}")
        files.append(_best_in(part) if os.path.isdir(part) else part)
    return files


def data_folder(recorded: str | None, checkpoint: str) -> str:
    """Return the folder of data that a training was given, where it is now.

    Args:
        recorded: ``data`` of the training's task; of several folders joined with ``:`` the first has the dictionaries.
        checkpoint: the training's.

    Raises:
        UserError: it is nowhere.
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
    """Return a file that a training was given, where it is now.

    Args:
        recorded: its path then.
        checkpoint: the training's.
        data: the folder of data, in or beside which the file may be.
        option: the one that names the file.

    Raises:
        UserError: it is nowhere.
    """
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
    if os.path.isabs(path):
        return
    folder = os.path.dirname(os.path.abspath(checkpoint))
    while True:
        yield os.path.join(folder, path)
        if (above := os.path.dirname(folder)) == folder:
            return
        folder = above


def _best_in(folder: str) -> str:
    best = os.path.join(folder, BEST)
    if os.path.isfile(best):
        return best
    raise UserError(f"{folder} has no {BEST}{_others(sorted(glob('*.pt', root_dir=folder)))}")


def _others(names: Sequence[str]) -> str:
    if not names:
        return ", nor any other file that ends in .pt; give a checkpoint"
    more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
    return f"; it has {', '.join(names[:5])}{more}: give one of them"
