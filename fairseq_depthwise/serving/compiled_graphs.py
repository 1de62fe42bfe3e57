"""Graphs compiled ahead of time by Inductor for this machine's CPU, with the weights in them, and kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

from fairseq_compat.errors import UserError, named
from fairseq_depthwise.models.base.model import StackModel
from fairseq_depthwise.modules.decoding.graph_search import Graphs
from fairseq_depthwise.serving.kept_graphs import cache_folder, kept_folder
from fairseq_depthwise.serving.standalone import compile_program
from fairseq_depthwise.serving.traced_graphs import require_equal, trace

#: Inductor's choices: weights in the layout of its own products, and what several layers read, such as the mask of
#: their attention, is computed once, not again in each.
_SETTINGS = {"freezing": True, "realize_reads_threshold": 1, "realize_opcount_threshold": 6}

#: Products of few rows are several times as fast where Inductor chooses them by trial, others are not.
_TRIAL = {"max_autotune": True, "max_autotune_gemm_backends": "CPP,ATEN"}

#: What is compiled, the longest first; the fastest products for a few rows are slow for many.
_PARTS: dict[str, dict[str, object]] = {"step_few": _TRIAL, "step_many": {}, "encoder": {}}

_FEW_ROWS = 16  # hypotheses up to which a step is one for few


def compiled_graphs(models: Sequence[StackModel], path: str, say: Callable[[str], None]) -> Graphs:
    """Return the graphs of models, compiled now unless they have been before; a UserError says why they cannot be."""
    # Inductor's own is in /tmp, under a name that anyone could take before, and set as soon as it is imported.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache_folder("inductor"))
    from torch._inductor.cpp_builder import get_cpp_compiler

    settings = {**_SETTINGS, "cpp.threads": torch.get_num_threads()}

    def make(folder: Path) -> None:
        try:
            get_cpp_compiler()
        except RuntimeError as error:
            raise UserError(f"{path} cannot be compiled: {named(error)}") from error
        say(f"compiling {path} for this CPU; this takes a minute or two, and is kept")
        encoder, step = trace(models, in_place=True)
        for name in _PARTS:
            program = encoder if name == "encoder" else step
            torch.export.save(program, folder / f"{name}.traced.pt2")
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for name in pool.map(lambda name: _compile(folder, name, settings | _PARTS[name]), _PARTS):
                say(f"compiled {name} of {path}")
        require_equal(_loaded(folder), models, path)

    folder = kept_folder("compiled", models, settings, make, say)
    try:
        return _loaded(folder)
    except (OSError, RuntimeError) as error:
        raise UserError(f"{folder} is damaged ({named(error)}); delete it") from error


def _compile(folder: Path, name: str, settings: dict[str, object]) -> str:
    program, package = folder / f"{name}.traced.pt2", folder / f"{name}.pt2"
    command = [sys.executable, compile_program.__file__, str(program), str(package), json.dumps(settings)]
    none = subprocess.DEVNULL
    ended = subprocess.run(command, stdin=none, stdout=none, stderr=subprocess.PIPE, text=True)
    program.unlink()
    if ended.returncode:
        raise UserError(f"{name} cannot be compiled: {ended.stderr.strip().rpartition(chr(10))[2] or ended.returncode}")
    return name


def _loaded(folder: Path) -> Graphs:
    from torch._inductor import aoti_load_package

    encode, few, many = (aoti_load_package(f"{folder}/{name}.pt2") for name in ("encoder", "step_few", "step_many"))

    def step(*arguments: Tensor) -> Sequence[Tensor]:
        return (few if arguments[0].numel() <= _FEW_ROWS else many)(*arguments)

    return Graphs(encode, step)
