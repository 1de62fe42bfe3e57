"""Generation with the stock Transformer stops with ``Mask Type should be defined``.

From PyTorch 1.12 on fairseq's encoder calls a fused kernel of PyTorch whose signature has changed since. Two modules
look at PyTorch's version to choose it, and read it with ``int``, which fails on vendors' builds such as ``2.6.0a0``.
Both are told a version from before the kernel; the ordinary path computes the same.
"""

from collections.abc import Iterator
from typing import Any

from fairseq_compat.patching import Overlay

#: The last release before fairseq's fused path begins.
BEFORE_FUSED_ENCODER = "1.11.0"


def adjust(module: Any) -> Iterator[None]:
    yield
    module.torch = Overlay(module.torch, __version__=BEFORE_FUSED_ENCODER)
