"""What a fairseq checkpoint may name besides what PyTorch's weights-only loading allows by itself.

``argparse.Namespace`` holds the options of fairseq 0.10. NumPy's arrays and numbers are in the meters of a run with
``--eval-bleu``. None of these runs code that is in the file: they hold data, and what is inside them is checked alike.
"""

from __future__ import annotations

import _codecs
import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

try:
    from numpy._core import multiarray
except ImportError:  # NumPy 1
    from numpy.core import multiarray  # type: ignore[no-redef]  # one name for either

#: One letter for each of NumPy's types of numbers: truth values, integers, floats.
NUMBERS = "?bhilqBHILQefdg"


def _under_name(function: Callable[..., Any], module: str) -> Callable[..., Any]:
    """Return ``function`` as a member of ``module``: NumPy 1 and 2 pickle the same function under two names."""

    def member(*args: Any) -> Any:
        return function(*args)

    member.__module__, member.__name__, member.__qualname__ = module, function.__name__, function.__name__
    return member


#: The allowed classes and functions.
ALLOWED: tuple[Callable[..., Any], ...] = (
    argparse.Namespace,
    np.ndarray,
    np.dtype,
    *dict.fromkeys(type(np.dtype(letter)) for letter in NUMBERS),
    *(
        _under_name(function, f"numpy.{core}.multiarray")
        for core in ("core", "_core")
        for function in (multiarray._reconstruct, multiarray.scalar)
    ),
    _codecs.encode,  # how an array's bytes are written
)


def install() -> None:
    """Tell PyTorch. Loading stays weights-only; everything else is refused."""
    torch.serialization.add_safe_globals(list(ALLOWED))


def is_allowed(name: str) -> bool:
    """Return whether ``module.name`` is on this list, or one of those that PyTorch needs for tensors."""
    of_torch = ("torch._utils._rebuild_", "torch.serialization.", "torch._tensor.", "torch.storage.")
    return (
        name in {f"{allowed.__module__}.{allowed.__name__}" for allowed in ALLOWED}
        or name in ("collections.OrderedDict", "collections.Counter", "torch.Size", "torch.device", "torch.Tensor")
        or name.startswith(of_torch)
        or (name.startswith("torch.") and (name.endswith("Storage") or _is_dtype(name)))
    )


def _is_dtype(name: str) -> bool:
    return isinstance(getattr(torch, name.removeprefix("torch."), None), torch.dtype)
