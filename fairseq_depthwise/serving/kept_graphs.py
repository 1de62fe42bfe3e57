"""A folder of the user's own in which graphs that take long to make are kept for the next time.

Some of them are libraries that are loaded and run, so nobody else may be able to write to the folder, and it is never
beside a checkpoint, which may be a stranger's. Graphs belong to a model's weights, PyTorch, the CPU, the number of
threads, and this plugin's own code.
"""

from __future__ import annotations

import functools
import hashlib
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from fairseq_compat import UserError
from fairseq_compat.outputs import folder_written_whole
from fairseq_depthwise.models.base.model import StackModel

#: The folder that is used instead of the user's cache folder.
VARIABLE = "FAIRSEQ_DEPTHWISE_CACHE"


def kept_folder(
    kind: str, models: Sequence[StackModel], about: object, make: Callable[[Path], None], say: Callable[[str], None]
) -> Path:
    """Return the folder with the graphs of models, made now unless they have been before.

    Args:
        kind: what is kept.
        models: of which.
        about: what the graphs depend on besides.
        make: called with a folder to write them into.
        say: called with where they are, once they are made.

    Raises:
        UserError: the folder cannot be written.
    """
    folder = cache_folder(kind) / _key(models, about)
    if folder.exists():
        return folder
    try:
        with folder_written_whole(str(folder), kind) as aside:
            make(Path(aside))
    except UserError:
        if not folder.exists():  # otherwise another process was faster, and its result is the same
            raise
    say(f"kept in {folder}")
    return folder


def cache_folder(kind: str) -> Path:
    """Return the folder of one kind of graphs, made if it is missing.

    Raises:
        UserError: somebody else could write to it, or it cannot be made.
    """
    given = os.environ.get(VARIABLE) or os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(given, "fairseq-depthwise", kind)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.stat()
    except OSError as error:
        raise UserError(f"{folder} cannot be made: {error.strerror}; set {VARIABLE} to another folder") from error
    if about.st_uid != os.getuid() or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UserError(
            f"{folder} can be written to by others, and what is in it would be run; chmod go-w it, or set {VARIABLE} "
            "to a folder of your own"
        )
    return folder


def _key(models: Sequence[StackModel], about: object) -> str:
    """Return a name for all that graphs depend on."""
    digest = hashlib.sha256()
    here = (torch.__version__, torch.get_num_threads(), torch.backends.cpu.get_cpu_capability(), *_cpu())
    digest.update(repr((here, about)).encode())
    digest.update(_own_code())
    for model in models:
        digest.update(repr((type(model).__name__, str(model), model.max_positions())).encode())
        for name, tensor in sorted(model.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().contiguous().view(torch.uint8).numpy())
    return digest.hexdigest()[:40]


def _cpu() -> list[str]:
    """Return what Linux says of the CPU's make and instructions."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    return sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))})


@functools.cache
def _own_code() -> bytes:
    """Return a digest of the files that say what is traced, and how it is written."""
    digest = hashlib.sha256()
    package = Path(__file__).resolve().parent.parent
    folders = ("models/**", "modules/**", "serving")
    for path in sorted(path for folder in folders for path in package.glob(f"{folder}/*.py")):
        digest.update(path.read_bytes())
    return digest.digest()
