"""Finds the files that a model needs: its checkpoints, and what their training read, which may have moved since."""

from __future__ import annotations

import json
import os
from glob import glob

from fairseq_compat import UserError
from fairseq_compat.recorded_files import places, recorded_file

#: The checkpoint that a folder stands for.
BEST = "checkpoint_best.pt"

#: The model in an exported folder of ``--format safetensors``.
WEIGHTS = "model.safetensors"

#: The file that says what is in an exported folder.
CONFIG = "config.json"

#: Entries of it that tell an exported folder from one with the configuration of another program.
_ENTRIES = ("format", "architecture")


def require_checkpoint(path: str, option: str = "") -> None:
    """Raise UserError unless there is a file at a path; ``option`` is the one that named it."""
    if not os.path.isfile(path):
        raise UserError(f"{f'{option} {path}'.strip() or repr(path)} does not exist; give the path of a checkpoint")


def require_data(data: str) -> None:
    """Raise UserError unless ``--data`` is a folder, or several joined with ``:`` of which the first is there."""
    if not os.path.isdir(data.split(os.pathsep)[0]):
        raise UserError(f"--data {data} is not a folder; give one that fairseq-preprocess made")


def checkpoint_files(model: str) -> list[str]:
    """Return the files of a model: one, or an ensemble joined with ``:``; a folder stands for its best checkpoint."""
    files = []
    for part in model.split(os.pathsep):
        if not part:
            raise UserError(f"MODEL {model!r} has an empty name in it; give checkpoints joined with {os.pathsep}")
        if not os.path.exists(part):
            raise UserError(f"{part} does not exist; give a checkpoint, or a folder that has {BEST}")
        require_one_model(part)
        file = os.path.join(part, BEST) if os.path.isdir(part) else part
        if not os.path.isfile(file) and os.path.isfile(os.path.join(part, WEIGHTS)):
            file = os.path.join(part, WEIGHTS)
        if not os.path.isfile(file):
            files_in_folder = ", ".join(sorted(glob("*.pt", root_dir=part))[:5]) or "none that ends in .pt"
            raise UserError(f"{part} has no {BEST}; give one of its files ({files_in_folder})")
        files.append(file)
    return files


def require_one_model(folder: str) -> None:
    """Raise UserError if a folder has both an exported model and a checkpoint, so that either could be meant."""
    if os.path.isfile(os.path.join(folder, BEST)) and is_exported(folder):
        raise UserError(
            f"{folder} has both {CONFIG} of an exported model and {BEST}; name the checkpoint itself, or move it"
        )


def is_exported(folder: str) -> bool:
    """Return whether a folder has a configuration that ``export`` wrote, of whatever format and version."""
    file = os.path.join(folder, CONFIG)
    if not os.path.isfile(file):
        return False
    try:
        with open(file, encoding="utf-8") as opened:
            config = json.load(opened)
    except (OSError, ValueError, RecursionError):  # of another program, or damaged
        return False
    return isinstance(config, dict) and all(entry in config for entry in _ENTRIES)


def input_files(model: str) -> list[str]:
    """Return the files from which a model is read; for an exported folder, all files in it.

    ``model`` is as for :func:`checkpoint_files`. Files that do not exist may be among the results.
    """
    files = []
    for part in model.split(os.pathsep):
        # Weights are read together with the files beside them.
        folder = os.path.dirname(part) or os.curdir if os.path.basename(part) == WEIGHTS else part
        best = os.path.join(folder, BEST)
        if os.path.isdir(folder) and not os.path.isfile(best):
            files += [entry.path for entry in os.scandir(folder)]
        else:
            files.append(best if os.path.isdir(part) else part)
    return files


def data_folders(recorded: str | None, checkpoint: str) -> list[str]:
    """Return where the data folder of a training may be now, the likeliest place first.

    Of several folders joined with ``:``, the first has the dictionaries.
    """
    if not recorded:
        raise UserError(f"{checkpoint} does not say what data it was trained with; name the folder with --data")
    first = str(recorded).split(os.pathsep)[0]
    folders = [place for place in places(first, checkpoint) if os.path.isdir(place)]
    if not folders:
        raise UserError(
            f"{checkpoint} was trained with the data in {first}, and no such folder is here or beside the checkpoint; "
            "name the folder with the dictionaries with --data"
        )
    return folders


def moved_file(recorded: str, checkpoint: str, data: str, option: str, digest: object = None) -> str:
    """Return where a file that a training was given with an option is now, perhaps in or beside the data folder.

    Of several, take the first with the recorded ``digest``, or without such a record the first.
    """
    file = recorded_file(recorded, checkpoint, [data, os.path.dirname(os.path.abspath(data))], digest)
    if file is None:
        raise UserError(
            f"{checkpoint} was trained with {option} {recorded}, and no such file is here or beside the data; name it "
            f"with {option}"
        )
    return file
