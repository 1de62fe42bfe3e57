"""``--num-batch-buckets``, audio masking and the CRF layer use what NumPy has removed, and stop with an exception.

These are ``np.int`` and ``np.float``, gone with NumPy 1.24, ``np.compat``, gone with 2.0, and the argument
``interpolation`` of ``np.percentile``, gone with 2.4; it is called ``method`` since 1.22.
"""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from fairseq_compat.patching import Overlay


def adjust(module: Any) -> Iterator[None]:
    yield

    numpy = module.np

    def percentile(*args: Any, interpolation: str = "linear", **options: Any) -> Any:
        return numpy.percentile(*args, **{"method": interpolation, **options})

    module.np = Overlay(numpy, int=int, float=float, compat=SimpleNamespace(long=int), percentile=percentile)
