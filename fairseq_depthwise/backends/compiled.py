"""Graphs compiled ahead of time by Inductor for this machine's CPU, weights included, and cached."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import torch
from torch import Tensor

from fairseq_compat.errors import UserError, named
from fairseq_depthwise.backends.graph_cache import cache_folder, cached_folder
from fairseq_depthwise.backends.graph_search import Graphs
from fairseq_depthwise.backends.standalone import compile_program
from fairseq_depthwise.backends.traced import require_equal, trace
from fairseq_depthwise.models.base.model import StackModel

#: Inductor's settings: weights in the layout that its products read, and values that several layers read, such as an
#: attention mask, computed once instead of in each of them. Precompiled headers would lie in /tmp under a predictable
#: name, where anyone could put a file first, and would serve a single program.
_SETTINGS: dict[str, object] = {
    "freezing": True,
    "realize_reads_threshold": 1,
    "realize_opcount_threshold": 6,
    "aot_inductor.precompile_headers": False,
}

#: Compiles the wrapper that calls the kernels 3 s faster; each call then takes 40 microseconds longer, which is a tenth
#: of a step with few rows.
_QUICK: dict[str, object] = {"aot_inductor.compile_wrapper_opt_level": "O0"}

#: Lets Inductor choose products by trial, which makes those of few rows several times as fast, but no others.
_TRIAL: dict[str, object] = {"max_autotune": True, "max_autotune_gemm_backends": "CPP,ATEN"}

#: What is compiled, in the order of tracing: the products that are fastest for a few rows are slow for many.
_PARTS: dict[str, dict[str, object]] = {"encoder": _QUICK, "step_few": _TRIAL, "step_many": _QUICK}

_FEW_ROWS = 16  # the most hypotheses for which step_few is used


def make_graphs(models: Sequence[StackModel], path: str, say: Callable[[str], None], *, anew: bool = True) -> Graphs:
    """Return the graphs of models from the cache; with ``anew``, compile those that are not in it.

    Raises:
        UserError: they are not in the cache, and cannot or must not be compiled.
    """
    # Inductor's own cache would be in /tmp under a predictable name; it reads this variable when it is imported.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache_folder("inductor"))
    # Otherwise each of Inductor's processes spends 4 s on finding out whether the compiler supports the CPU's vectors.
    os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
    # Inductor hard-codes the number of threads into its loops, so each number needs a package of its own.
    settings = {**_SETTINGS, "cpp.threads": torch.get_num_threads()}

    def make(folder: Path) -> None:
        if not anew:
            raise UserError(f"{path} has not been compiled")
        _require_compiler(path)
        say(f"compiling {path} for this CPU; this takes a minute or two, and is kept")
        _compile(models, settings, path, folder, say)
        # Checked before the folder is renamed into the cache, so whatever is cached agreed with the models.
        require_equal(_loaded(folder), models, path)

    folder = cached_folder("compiled", models, settings, make, say)
    try:
        return _loaded(folder)
    except (OSError, RuntimeError) as error:
        raise UserError(f"{folder} is damaged ({named(error)}); delete it") from error


def _require_compiler(path: str) -> None:
    """Raise UserError where there is no C++ compiler."""
    try:
        from torch._inductor.cpp_builder import get_cpp_compiler  # in PyTorch 2.6 and newer

        get_cpp_compiler()
    except (ImportError, RuntimeError) as error:
        raise UserError(f"{path} cannot be compiled: {named(error)}") from error


def _compile(
    models: Sequence[StackModel], settings: dict[str, object], path: str, folder: Path, say: Callable[[str], None]
) -> None:
    """Trace the models, and compile each part, in a process of its own, into a package in the folder."""
    jobs: list[Future[str]] = []
    with ExitStack() as stack:
        # The processes import what they need while this one traces.
        compilers = {name: stack.enter_context(_start_compiler()) for name in _PARTS}
        # The threads only wait for the compilers, which are processes of their own.
        pool = stack.enter_context(ThreadPoolExecutor(os.cpu_count()))
        # Compiling the encoder overlaps with tracing the step.
        for graph, program in zip(("encoder", "step"), trace(models, in_place=True), strict=True):
            traced = folder / f"{graph}.traced.pt2"
            torch.export.save(program, traced)
            for name in _PARTS:
                # Both parts with "step" in their names are compiled from the one traced step.
                if graph in name:
                    job = json.dumps([str(traced), f"{folder / name}.pt2", settings | _PARTS[name]])
                    jobs.append(pool.submit(_finish, compilers[name], job, name))
        for finished in jobs:
            say(f"compiled {finished.result()} of {path}")
    for traced in folder.glob("*.traced.pt2"):
        traced.unlink()


def _start_compiler() -> subprocess.Popen[str]:
    """Start a process that waits for a job on standard input."""
    return subprocess.Popen(
        [sys.executable, compile_program.__file__],
        stdin=subprocess.PIPE,
        # Standard output may carry the translations.
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def _finish(compiler: subprocess.Popen[str], job: str, name: str) -> str:
    """Give a process its job and wait for it; return the name of the part."""
    _, errors = compiler.communicate(job)
    if compiler.returncode:
        # The last line of a traceback is the exception.
        last_line = errors.strip().rpartition("\n")[2]
        raise UserError(f"{name} cannot be compiled: {last_line or compiler.returncode}")
    return name


def _loaded(folder: Path) -> Graphs:
    from torch._inductor import aoti_load_package

    encode, step_few, step_many = (
        aoti_load_package(f"{folder}/{name}.pt2") for name in ("encoder", "step_few", "step_many")
    )

    def step(*arguments: Tensor) -> Sequence[Tensor]:
        # The first argument holds the newest token of each hypothesis (B x k).
        rows = arguments[0].numel()
        return step_few(*arguments) if rows <= _FEW_ROWS else step_many(*arguments)

    return Graphs(encode, step)
