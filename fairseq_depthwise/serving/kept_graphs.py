"""A folder of the user's own in which graphs that take long to make are kept for the next time.

Some of them are libraries that are loaded and run, so nobody else may be able to write to the folder or to one above
it, no link may lead to it, and it is never beside a checkpoint, which may be a stranger's. It is opened once, looked
at, and loaded from as it was opened. Graphs belong to a model's weights and options, PyTorch, the CPU and the number of
threads.
"""

from __future__ import annotations

import errno
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
from fairseq_depthwise.models.base.model import StackModel

#: The folder that is used instead of the user's cache folder.
VARIABLE = "FAIRSEQ_DEPTHWISE_CACHE"

#: To be raised with every change of what is traced, and of how it is compiled or written.
FORMAT = 1


@contextmanager
def kept_folder(
    kind: str, models: Sequence[StackModel], about: object, make: Callable[[Path], None], say: Callable[[str], None]
) -> Iterator[Path]:
    """Open the folder with the graphs of models, written by ``make`` now unless they have been before.

    What is yielded is the folder that was opened, whatever has its name by now; one that somebody else could write to
    is refused.
    """
    folder = cache_folder(kind) / _key(models, about)
    if not folder.exists():
        before = os.umask(0o077)
        try:
            with folder_written_whole(str(folder), kind) as aside:
                make(Path(aside))
        except (UserError, OSError):
            if not folder.exists():  # otherwise another process was faster, and its result is the same
                raise
        finally:
            os.umask(before)
        say(f"kept in {folder}")
    descriptor = _opened(folder)
    try:
        if os.fstat(descriptor).st_mode & 0o077:  # nobody else comes to the files in it, whatever their modes are
            raise _refusal(folder, "can be opened by others")
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def cache_folder(kind: str) -> Path:
    """Return the folder of one kind of graphs, made if it is missing; one that others could write to is refused."""
    given = os.environ.get(VARIABLE) or os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(os.path.abspath(given), "fairseq-depthwise", kind)
    for path in (*reversed(folder.parents), folder):
        if path.is_symlink() and not path.lstat().st_uid == 0 != os.getuid():  # a system's own, such as /home, may be
            raise _refusal(path, "is a link")
    folder = folder.resolve()
    os.close(_opened(folder))
    return folder


def _opened(folder: Path) -> int:
    """Open a folder by way of each folder above it, made where it is missing; all of them are checked."""
    descriptor = os.open("/", os.O_PATH)
    try:
        for path in (*list(reversed(folder.parents))[1:], folder):
            if not path.exists():
                os.mkdir(path.name, 0o700, dir_fd=descriptor)
            inner = os.open(path.name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
            about = os.fstat(descriptor)
            # In a folder as /tmp nobody renames another's.
            shared = about.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not about.st_mode & stat.S_ISVTX
            if shared or about.st_uid not in (0, os.getuid()):
                raise _refusal(path, "can be written to by others")
    except (OSError, UserError) as error:
        os.close(descriptor)
        if isinstance(error, UserError):
            raise
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise _refusal(path, "is a link, or no folder") from error
        raise UserError(f"{path} cannot be made: {error.strerror}; set {VARIABLE} to another folder") from error
    return descriptor


def _refusal(path: Path, why: str) -> UserError:
    return UserError(
        f"{path} {why}, and what is in the cache would be run; chmod go-w it, or set {VARIABLE} to a folder of your own"
    )


def _key(models: Sequence[StackModel], about: object) -> str:
    """Return a name for all that graphs depend on."""
    digest = hashlib.sha256()
    here = (torch.__version__, torch.get_num_threads(), torch.backends.cpu.get_cpu_capability(), *_cpu())
    digest.update(repr((FORMAT, here, about)).encode())
    for model in models:
        digest.update(repr((type(model).__name__, str(model), model.max_positions())).encode())
        for module in model.modules():  # options that neither the names of modules nor tensors show
            public = {name: value for name, value in vars(module).items() if not name.startswith("_")}
            plain = {name: value for name, value in public.items() if isinstance(value, (int, float, str))}
            functions = [value.__qualname__ for value in public.values() if inspect.isroutine(value)]
            digest.update(repr((plain, functions)).encode())
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
