"""Graphs compiled ahead of time by Inductor for this machine's CPU, and kept for the next time.

What is kept are libraries that are loaded and run, so they lie in a folder of the user's own that nobody else can write
to, never beside a checkpoint, which may be a stranger's. They belong to a model's weights, which are laid out for the
CPU while it is compiled, to PyTorch, the CPU, the number of threads, and this plugin's own code.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_compat import UserError
from fairseq_depthwise.models.base.model import StackModel
from fairseq_depthwise.serving.traced_graphs import FEW, MANY, CallableGraphs, require_equal, trace

#: The folder that is used instead of the user's cache folder.
VARIABLE = "FAIRSEQ_DEPTHWISE_CACHE"

#: Inductor's choices: weights in the layout of its own products for few rows, which it chooses by trial; and what
#: several layers read, such as the mask of their attention, is computed once, not again in each.
_SETTINGS = {
    "freezing": True,
    "max_autotune": True,
    "max_autotune_gemm_backends": "CPP,ATEN",
    "realize_reads_threshold": 1,
    "realize_opcount_threshold": 6,
}

#: What is compiled: the fastest products for a few rows are slow for many, and the other way round.
_PARTS = ("encoder", "step_few", "step_many")

#: Hypotheses up to which a step is one for few.
_FEW_ROWS = 16

#: Seconds from one word about how long it has taken to the next.
_EVERY = 20.0


def compiled_graphs(models: Sequence[StackModel], path: str, say: Callable[[str], None]) -> CallableGraphs:
    """Return the graphs of models, compiled now unless they have been before.

    Args:
        models: on the CPU, in evaluation mode, after fairseq's ``prepare_for_inference_``.
        path: their checkpoints, for messages.
        say: called with what takes long.

    Raises:
        UserError: they cannot be compiled here; the message says why.
    """
    from torch._inductor import aoti_compile_and_package, aoti_load_package

    folder = cache_folder() / _key(models)
    if not folder.exists():
        _require_compiler()
        few, many = (trace(models, path, in_place=True, typical=typical) for typical in (FEW, MANY))
        programs = zip(_PARTS, (few.encoder, few.step, many.step), strict=True)
        settings = {**_SETTINGS, "cpp.threads": torch.get_num_threads()}
        aside = Path(tempfile.mkdtemp(prefix=".compiling-", dir=folder.parent))
        try:
            for number, (name, program) in enumerate(programs, start=1):
                with _progress(f"compiling {path} for this CPU, part {number} of {len(_PARTS)}", say):
                    aoti_compile_and_package(
                        program, package_path=str(aside / f"{name}.pt2"), inductor_configs=settings
                    )
            require_equal(_loaded(aside, aoti_load_package), models, path)
            try:
                aside.rename(folder)
            except OSError:
                if not folder.exists():  # otherwise another process was faster, and its result is the same
                    raise
        except UserError:
            raise
        except Exception as error:  # Inductor raises what the compiler, the disk or its own passes give
            reason = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
            raise UserError(f"{path} cannot be compiled: {reason}") from error
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        say(f"kept in {folder}")
    try:
        return _loaded(folder, aoti_load_package)
    except (OSError, RuntimeError) as error:
        raise UserError(f"{folder} is damaged ({str(error).splitlines()[0][:200]}); delete it") from error


def _loaded(folder: Path, load: Callable[[str], Any]) -> CallableGraphs:
    encode, few, many = (load(str(folder / f"{name}.pt2")) for name in _PARTS)

    def step(*arguments: Tensor) -> Sequence[Tensor]:
        return (few if arguments[0].numel() <= _FEW_ROWS else many)(*arguments)

    return CallableGraphs(encode, step)


def cache_folder() -> Path:
    """Return the folder of compiled graphs, made if it is missing.

    Raises:
        UserError: somebody else could write to it, or it cannot be made.
    """
    given = os.environ.get(VARIABLE) or os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(given, "fairseq-depthwise", "compiled")
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


def _require_compiler() -> None:
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        found = shutil.which(get_cpp_compiler())
    except Exception:  # torch has an error of its own for this
        found = None
    if found is None:
        raise UserError("compiling needs a C++ compiler, and there is none; install g++, or set CXX")


def _key(models: Sequence[StackModel]) -> str:
    """Return a name for all that the compiled graphs depend on."""
    digest = hashlib.sha256()
    about = (torch.__version__, torch.get_num_threads(), torch.backends.cpu.get_cpu_capability(), *_cpu())
    digest.update(repr((about, _SETTINGS)).encode())
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
    """Return a digest of the files that say what is traced."""
    digest = hashlib.sha256()
    package = Path(__file__).resolve().parent.parent
    for path in sorted([*package.glob("models/**/*.py"), *package.glob("modules/**/*.py"), Path(__file__)]):
        digest.update(path.read_bytes())
    return digest.digest()


@contextmanager
def _progress(what: str, say: Callable[[str], None]) -> Iterator[None]:
    """Say how long something takes, from time to time."""
    done, started = threading.Event(), time.monotonic()
    say(f"{what}; this takes a minute or two, and is kept")

    def talk() -> None:
        while not done.wait(_EVERY):
            say(f"{what}: {time.monotonic() - started:.0f} s")

    thread = threading.Thread(target=talk, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
