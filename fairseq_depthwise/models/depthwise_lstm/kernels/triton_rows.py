"""What the Triton kernels of the depth-wise cell share: loading part of a row, and starting programs.

R is the number of rows (positions); a program takes one row forward, and several backward. All arithmetic is in
float32. These files need Triton; ``choice.py`` decides when they are used.
"""

# Kernels stay without types, because Triton's compiler reads annotations and knows its own alone.
# mypy: allow-untyped-defs, allow-incomplete-defs

from __future__ import annotations

import contextlib
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

#: Warps of a backward kernel on each of a GPU's processors, about what their registers hold at once. Each program takes
#: several rows and adds up their gradients of the norms; what the programs have is added up afterwards.
WARPS_PER_PROCESSOR = 16
PROGRAMS_ELSEWHERE = 64


@triton.jit
def load_columns(pointer, columns, mask):
    return tl.load(pointer + columns, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def drop(values, keep, columns, mask, scale):
    return tl.where(tl.load(keep + columns, mask=mask, other=0) != 0, values * scale, 0.0)


def warps_for(columns: int) -> int:
    """Return the warps of a program that holds ``columns`` of a row, with padding: more columns need more registers."""
    return 4 if columns <= 1024 else 8 if columns <= 2048 else 16


def launch_options(columns: int) -> dict[str, Any]:
    """Return what Triton's compiler is told of a program that holds ``columns`` of a row, with padding."""
    # A product and a sum in one operation is Triton's default up to 3.9, and no longer from 3.10 on.
    return {"num_warps": warps_for(columns), "enable_fp_fusion": True}


def program_limit(device: torch.device, columns: int) -> int:
    """Return the most programs of a backward kernel; with more rows, a program takes several."""
    if device.type == "cuda":
        processors: int = torch.cuda.get_device_properties(device).multi_processor_count
        return processors * WARPS_PER_PROCESSOR // warps_for(columns)
    return PROGRAMS_ELSEWHERE


def start_programs(kernel: Any, programs: int, *arguments: Any, columns: int, **constants: Any) -> None:
    """Start programs, if any, on the GPU of the arguments; Triton itself takes the current one."""
    if programs:
        device = arguments[0].device
        with torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():
            kernel[(programs,)](*arguments, **constants, **launch_options(columns))


def as_rows(tensor: Tensor) -> Tensor:
    """Return ... x columns as R x columns; the kernels want the columns of a row side by side."""
    rows = tensor.reshape(-1, tensor.size(-1))
    return rows if rows.stride(1) == 1 else rows.contiguous()


def as_bytes(keep: Tensor | None) -> Tensor | None:
    """Return a contiguous mask as the kernels read it."""
    return None if keep is None else keep.view(torch.uint8)
