"""Graphs compiled ahead of time by Inductor for this machine's CPU, with the weights in them, and kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
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

#: Inductor's choices: weights in the layout of its own products, and what several layers read, such as the mask of
#: their attention, is computed once, not again in each. Precompiled headers would be in /tmp, under a name that anyone
#: could take before, and serve one program only.
_SETTINGS = {
    "freezing": True, "realize_reads_threshold": 1, "realize_opcount_threshold": 6,
    "aot_inductor.precompile_headers": False,
}  # fmt: skip

#: What calls the kernels is compiled in 3 s less; a call takes 40 microseconds more, a tenth of a step for few rows.
_QUICK: dict[str, object] = {"aot_inductor.compile_wrapper_opt_level": "O0"}

#: Products of few rows are several times as fast where Inductor chooses them by trial, others are not.
_TRIAL: dict[str, object] = {"max_autotune": True, "max_autotune_gemm_backends": "CPP,ATEN"}

#: What is compiled, in the order in which it is traced; the fastest products for a few rows are slow for many.
_PARTS: dict[str, dict[str, object]] = {"encoder": _QUICK, "step_few": _TRIAL, "step_many": _QUICK}

_FEW_ROWS = 16  # hypotheses up to which a step is one for few


def make_graphs(models: Sequence[StackModel], path: str, say: Callable[[str], None], *, anew: bool = True) -> Graphs:
    """Return the graphs of models, compiled now, with ``anew``, or before; a UserError says why they are not."""
    # Inductor's own is in /tmp, under a name that anyone could take before, and set as soon as it is imported.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache_folder("inductor"))
    # Inductor's programs would each compile some, for 4 s, to see whether the compiler knows the CPU's vectors.
    os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
    settings = {**_SETTINGS, "cpp.threads": torch.get_num_threads()}

    def make(folder: Path) -> None:
        if not anew:
            raise UserError(f"{path} has not been compiled")
        try:
            from torch._inductor.cpp_builder import get_cpp_compiler  # as all that is needed, in PyTorch 2.6 and newer

            get_cpp_compiler()
        except (ImportError, RuntimeError) as error:
            raise UserError(f"{path} cannot be compiled: {named(error)}") from error
        say(f"compiling {path} for this CPU; this takes a minute or two, and is kept")
        none, pipe = subprocess.DEVNULL, subprocess.PIPE

        def compiled(compiler: subprocess.Popen[str], name: str, program: Path) -> str:
            job = json.dumps([str(program), f"{folder / name}.pt2", settings | _PARTS[name]])
            error = compiler.communicate(job)[1].strip()
            if compiler.returncode:
                raise UserError(f"{name} cannot be compiled: {error.rpartition(chr(10))[2] or compiler.returncode}")
            return name

        with ExitStack() as stack:
            command, compilers, jobs = [sys.executable, compile_program.__file__], {}, []
            for name in _PARTS:  # which import what they need while this process traces
                compilers[name] = subprocess.Popen(command, stdin=pipe, stdout=none, stderr=pipe, text=True)
                stack.enter_context(compilers[name])
            pool = stack.enter_context(ThreadPoolExecutor(os.cpu_count()))
            programs = trace(models, in_place=True)
            for graph, program in zip(("encoder", "step"), programs, strict=True):
                torch.export.save(program, file := folder / f"{graph}.traced.pt2")
                jobs += [pool.submit(compiled, compilers[name], name, file) for name in _PARTS if graph in name]
            for job in jobs:
                say(f"compiled {job.result()} of {path}")
        for file in folder.glob("*.traced.pt2"):
            file.unlink()
        require_equal(_loaded(folder), models, path)

    folder = cached_folder("compiled", models, settings, make, say)
    try:
        return _loaded(folder)
    except (OSError, RuntimeError) as error:
        raise UserError(f"{folder} is damaged ({named(error)}); delete it") from error


def _loaded(folder: Path) -> Graphs:
    from torch._inductor import aoti_load_package

    encode, few, many = (aoti_load_package(f"{folder}/{name}.pt2") for name in ("encoder", "step_few", "step_many"))

    def step(*arguments: Tensor) -> Sequence[Tensor]:
        return (few if arguments[0].numel() <= _FEW_ROWS else many)(*arguments)

    return Graphs(encode, step)
