"""A cache, in a folder of the user's, for graphs that take long to make.

Some of them are libraries that are loaded and run. So nobody else may be able to write to the folder or its parents,
and it never lies beside a checkpoint, which may come from a stranger.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from fairseq_compat import UserError
from fairseq_compat.outputs import folder_written_whole
from fairseq_compat.process import processor_facts
from fairseq_compat.user_cache import user_cache
from fairseq_depthwise.models.base.model import StackModel

VARIABLE = "FAIRSEQ_DEPTHWISE_CACHE"  # names a folder to use instead of the user's cache folder

#: Packages with the code that is traced, and that compiles and writes graphs: other code makes other graphs.
_TRACED = ("backends", "models", "modules")


def cached_folder(
    kind: str, models: Sequence[StackModel], about: object, make: Callable[[Path], None], say: Callable[[str], None]
) -> Path:
    """Return the folder with the graphs of models, which ``make`` writes unless it exists."""
    # Anything that changes the graphs changes the key, so nothing in the cache goes stale.
    folder = cache_folder(kind) / _key(models, about)
    if not folder.exists():
        try:
            with _for_this_user_only(), folder_written_whole(str(folder), kind) as aside:
                make(Path(aside))
        except (UserError, OSError):
            if not folder.exists():  # otherwise another process was faster; its result is the same
                raise
        say(f"kept in {folder}")
    _require_own(folder)
    if folder.stat().st_mode & 0o077:  # otherwise nobody else can reach its files, whatever their modes
        raise _refusal(folder, "can be opened by others")
    return folder


def any_cached(kind: str) -> bool:
    """Return whether the cache may have graphs of a kind, of any model."""
    return _place(kind).is_dir()


def _place(kind: str) -> Path:
    cache = os.environ.get(VARIABLE) or user_cache()
    return Path(cache, "fairseq-depthwise", kind).resolve()


def cache_folder(kind: str) -> Path:
    """Return the folder for a kind of graphs, and create it if needed; refuse one that others could write to."""
    folder = _place(kind)
    try:
        with _for_this_user_only():
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} cannot be made: {error.strerror}; set {VARIABLE} to another folder") from error
    _require_own(folder)
    return folder


@contextmanager
def _for_this_user_only() -> Iterator[None]:
    # A umask, because mkdir's mode applies neither to parent folders nor to the files that make() writes.
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def _require_own(folder: Path) -> None:
    """Refuse a folder that somebody else could write to or replace, now or later."""
    # Anyone who can write to a parent folder could swap this one for another.
    for path in (folder, *folder.parents):
        # lstat() does not follow links, which could be redirected later.
        about = path.lstat()
        if not stat.S_ISDIR(about.st_mode):
            raise _refusal(path, "is a link, or no folder")
        # In a folder with the sticky bit, such as /tmp, nobody can rename what belongs to others.
        shared = about.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not about.st_mode & stat.S_ISVTX
        if shared or about.st_uid not in (0, os.getuid()):
            raise _refusal(path, "can be written to by others")


def _refusal(path: Path, why: str) -> UserError:
    return UserError(
        f"{path} {why}, and what is in the cache would be run; chmod go-w it, or set {VARIABLE} to a folder of your own"
    )


def _key(models: Sequence[StackModel], about: object) -> str:
    """Return a digest of all that graphs depend on: code, weights, options, PyTorch, CPU and number of threads."""
    # 1. The machine: code compiled for one CPU may crash on another. Arm calls the flags Features.
    digest, facts = hashlib.sha256(), processor_facts()
    cpu = [facts.get(name) for name in ("model name", "flags", "Features")]
    here = (torch.__version__, torch.get_num_threads(), torch.backends.cpu.get_cpu_capability(), *cpu)
    digest.update(repr((here, about)).encode())
    # 2. The code that graphs are traced from.
    for file in _traced_files():
        digest.update(file.read_bytes())
    # 3. The models: structure, options and weights.
    for model in models:
        digest.update(repr((type(model).__name__, str(model), model.max_positions())).encode())
        for module in model.modules():  # options that show neither in names of modules nor in tensors
            public = {name: value for name, value in vars(module).items() if not name.startswith("_")}
            plain = {name: value for name, value in public.items() if isinstance(value, (int, float, str))}
            functions = [value.__qualname__ for value in public.values() if inspect.isroutine(value)]
            digest.update(repr((plain, functions)).encode())
        for name, tensor in sorted(model.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            # As bytes, because NumPy has no bfloat16.
            digest.update(tensor.detach().contiguous().view(torch.uint8).numpy())
    return digest.hexdigest()[:40]


def _traced_files() -> list[Path]:
    """Return the Python files with the code behind graphs, in a fixed order."""
    files: list[Path] = []
    for package in _TRACED:
        files += sorted((Path(__file__).parents[1] / package).rglob("*.py"))
    return files
