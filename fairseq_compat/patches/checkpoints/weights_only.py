"""Below PyTorch 2.6 files that fairseq reads beside its checkpoints, such as a vocoder, run whatever code is in them.

In every module of fairseq that mentions ``torch.load`` it becomes :func:`fairseq_compat.checkpoints.load`.
"""

from collections.abc import Iterator
from typing import Any

from fairseq_compat.patching import Overlay


def adjust(module: Any) -> Iterator[None]:
    yield

    from fairseq_compat import checkpoints

    def load(file: Any, map_location: Any = None) -> Any:
        return checkpoints.load(file)

    if hasattr(module, "torch"):
        module.torch = Overlay(module.torch, load=load)
