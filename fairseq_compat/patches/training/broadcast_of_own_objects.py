"""Resuming on several processes fails: weights-only loading refuses the objects that rank 0 sends to the others.

``fairseq.distributed.utils`` broadcasts Python objects (the checkpoint, already read safely and turned into a
configuration object) by ``torch.save`` and ``torch.load`` through memory. These bytes come from a process of the same
run, never from a file, so they are loaded as they are.
"""

from collections.abc import Iterator
from typing import IO, Any

from fairseq_compat.patching import Overlay


def adjust(module: Any) -> Iterator[None]:
    yield

    import torch

    def load(buffer: IO[bytes], map_location: Any = None) -> Any:
        return torch.load(buffer, map_location=map_location, weights_only=False)

    module.torch = Overlay(module.torch, load=load)
