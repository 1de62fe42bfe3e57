"""Audio masking and the CRF layer use ``np.int`` and ``np.float``, which NumPy 1.24 removed."""

from collections.abc import Iterator
from typing import Any

from fairseq_compat.overlay import Overlay


def adjust(module: Any) -> Iterator[None]:
    yield
    module.np = Overlay(module.np, int=int, float=float)
