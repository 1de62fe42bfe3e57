"""Finding parameters that are not numbers: what a training that diverged leaves behind."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from fairseq_compat.errors import UserError

#: fairseq asks this buffer for its device and type only, and saves it with whatever was in memory.
NEVER_READ = "_float_tensor"


def require_finite(values: Iterable[tuple[str, Tensor]], name: str) -> None:
    """Raise UserError unless all values of a model, (name, tensor), are finite numbers; ``name`` is its file."""
    count, wrong = 0, []
    for key, tensor in values:
        if tensor.is_floating_point() and not key.endswith(NEVER_READ):
            count += 1
            if not torch.isfinite(tensor).all():
                wrong.append(key)
    if wrong:
        raise UserError(
            f"{name} holds NaN or infinite values in {len(wrong)} of its {count} parameters, the first of them "
            f"{wrong[0]}: its training diverged; give a checkpoint of before that"
        )
