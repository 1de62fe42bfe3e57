"""Whether Triton works on this machine: on a GPU, or without one in its interpreter.

The interpreter is chosen when triton is imported, and asked about when kernels run; in between the variable is gone,
for the other tests of the process. Import this before anything that imports triton.
"""

from __future__ import annotations

import pytest
import torch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _probe() -> str | None:
    try:
        import triton_probe_kernel
    except ImportError:
        return "Triton has no build for this machine"
    if DEVICE.type == "cpu" and not triton_probe_kernel.interpreted():
        return "Triton was imported before its interpreter could be chosen"
    if DEVICE.type == "cpu" and triton_probe_kernel.VERSION < (3, 2):
        return "Triton's interpreter knows what the kernels use from 3.2 on"
    try:
        found = triton_probe_kernel.add_up(torch.tensor([1.0, 2.0, 4.0], device=DEVICE))
    except Exception as error:  # Triton 3.6 beside NumPy 2.4, for one
        if DEVICE.type == "cuda":
            raise
        return f"Triton's interpreter does not work here: {str(error).strip() or type(error).__name__}"
    assert found == 7
    return None


with pytest.MonkeyPatch.context() as patch:
    if DEVICE.type == "cpu":
        patch.setenv("TRITON_INTERPRET", "1")
    #: Why Triton cannot be used here, or None.
    PROBLEM = _probe()
    if PROBLEM is None:
        # The kernels choose the interpreter when they are imported, as triton does.
        from fairseq_depthwise.models.depthwise_lstm.kernels import (
            triton_gate_update,  # noqa: F401  # see above
            triton_norm_activation,  # noqa: F401  # see above
        )
