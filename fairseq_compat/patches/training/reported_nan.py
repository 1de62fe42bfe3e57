"""A training that turns NaN ends in ``StopIteration`` or ``IndexError`` instead of fairseq's report of where it began.

For that report fairseq repeats the update with hooks on every module, of a kind that PyTorch cannot put on modules
whose output has no tensor in its first place. Here gradients are looked at where they arrive, at the tensors of an
output, wherever in it these are.
"""

from collections.abc import Callable, Iterator
from typing import Any


def adjust(module: Any) -> Iterator[None]:
    yield

    import torch

    def add_hooks(self: Any, watched: Any) -> None:
        if self.forward:
            self.fhooks.append(watched.register_forward_hook(self.fhook_fn))
        if self.backward:
            self.bhooks.append(watched.register_forward_hook(watch_gradients(self)))

    def watch_gradients(detector: Any) -> Callable[[Any, Any, Any], None]:
        def watch(watched: Any, given: Any, output: Any) -> None:
            if isinstance(output, dict):
                output = list(output.values())
            if isinstance(output, (list, tuple)):
                for part in output:
                    watch(watched, given, part)
            elif torch.is_tensor(output) and output.requires_grad:
                output.register_hook(lambda gradient: detector.bhook_fn(watched, None, gradient))

        return watch

    module.NanDetector.add_hooks = add_hooks
