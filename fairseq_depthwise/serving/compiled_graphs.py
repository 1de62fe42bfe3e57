"""Graphs compiled ahead of time by Inductor for this machine's CPU, and kept for the next time.

They have the weights in them, laid out for the CPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_compat.errors import UserError, named
from fairseq_depthwise.models.base.model import StackModel
from fairseq_depthwise.serving.kept_graphs import cache_folder, kept_folder
from fairseq_depthwise.serving.traced_graphs import FEW, MANY, CallableGraphs, require_equal, trace

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


def compiled_graphs(models: Sequence[StackModel], path: str, say: Callable[[str], None]) -> CallableGraphs:
    """Return the graphs of models on the CPU, compiled now unless they have been before; ``say`` is told what takes
    long.

    Where they cannot be compiled here, a UserError says why.
    """
    from torch._inductor import aoti_compile_and_package, aoti_load_package

    settings = {**_SETTINGS, "cpp.threads": torch.get_num_threads()}

    def make(folder: Path) -> None:
        # Inductor's own is in /tmp, under a name that anyone could take before.
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder("inductor")))
        try:
            few, many = (trace(models, in_place=True, typical=typical) for typical in (FEW, MANY))
            programs = zip(_PARTS, (few.encoder, few.step, many.step), strict=True)
            for number, (name, program) in enumerate(programs, start=1):
                say(f"compiling {path} for this CPU, part {number} of {len(_PARTS)}: a minute or two, and it is kept")
                aoti_compile_and_package(program, package_path=str(folder / f"{name}.pt2"), inductor_configs=settings)
        except Exception as error:  # Inductor raises what the compiler, the disk or its own passes give
            raise UserError(f"{path} cannot be compiled: {named(error)}") from error
        require_equal(_loaded(folder, aoti_load_package), models, path)

    folder = kept_folder("compiled", models, settings, make, say)
    try:
        return _loaded(folder, aoti_load_package)
    except (OSError, RuntimeError) as error:
        raise UserError(f"{folder} is damaged ({named(error)}); delete it") from error


def _loaded(folder: Path, load: Callable[[str], Any]) -> CallableGraphs:
    encode, few, many = (load(str(folder / f"{name}.pt2")) for name in _PARTS)

    def step(*arguments: Tensor) -> Sequence[Tensor]:
        return (few if arguments[0].numel() <= _FEW_ROWS else many)(*arguments)

    return CallableGraphs(encode, step)
