"""Generation with the stock Transformer stops with ``Mask Type should be defined``.

From PyTorch 1.12 on fairseq's encoder layer calls a fused kernel of PyTorch whose signature has changed since. The
two attributes that choose it are switched off in every new layer; the ordinary path computes the same.
"""

import functools
from collections.abc import Iterator
from types import ModuleType
from typing import Any


def adjust(module: ModuleType) -> Iterator[None]:
    yield

    layer = module.TransformerEncoderLayerBase
    original = layer.__init__

    @functools.wraps(original)
    def initialise(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.BT_version = False
        self.can_use_fastpath = False

    layer.__init__ = initialise
