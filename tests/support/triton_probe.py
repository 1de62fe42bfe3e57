"""Whether Triton works on this machine: on a GPU, or without one in its interpreter.

The interpreter is chosen when triton is imported, and asked about when kernels run; in between the variable is gone,
for the other tests of the process. Import this before anything that imports triton.
"""

# mypy: allow-untyped-defs

from __future__ import annotations

import pytest
import torch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _probe() -> str | None:
    """Run a kernel that has nothing to do with the project's: if it does not run, Triton is at fault."""
    if triton is None:
        return "Triton has no build for this machine"
    if DEVICE.type == "cpu" and isinstance(tl.sum, triton.JITFunction):
        return "Triton was imported before its interpreter could be chosen"
    if DEVICE.type == "cpu" and tuple(map(int, triton.__version__.split(".")[:2])) < (3, 2):
        return "Triton's interpreter knows what the kernels use from 3.2 on"
    values, total = torch.tensor([1.0, 2.0, 4.0], device=DEVICE), torch.zeros(1, device=DEVICE)
    try:
        triton.jit(_add_up)[(1,)](values, total, len(values))
    except Exception as error:  # Triton 3.6 beside NumPy 2.4, for one
        if DEVICE.type == "cuda":
            raise
        return f"Triton's interpreter does not work here: {str(error).strip() or type(error).__name__}"
    assert total == 7
    return None


def _add_up(values, total, steps):
    result = 0.0
    for index in range(steps):
        result += tl.load(values + index)
    tl.store(total, result)


with pytest.MonkeyPatch.context() as patch:
    if DEVICE.type == "cpu":
        patch.setenv("TRITON_INTERPRET", "1")
    try:
        import triton
        import triton.language as tl
    except ImportError:
        triton = None
    #: Why Triton cannot be used here, or None.
    PROBLEM = _probe()
    if PROBLEM is None:
        # The kernels choose the interpreter when they are imported, as triton does.
        from fairseq_depthwise.models.depthwise_lstm.kernels import (
            triton_gate_update,  # noqa: F401  # see above
            triton_norm_activation,  # noqa: F401  # see above
        )
