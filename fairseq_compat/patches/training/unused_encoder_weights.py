"""``--ddp-backend pytorch_ddp``, the default, ends the stock Transformer's training on several devices in an update.

Its encoder layers keep a second copy of their weights for PyTorch's fused kernel, which no loss reaches, and PyTorch
waits for the gradients of all weights. Here it is told which those are; they are no part of what is computed.
"""

from collections.abc import Iterator
from typing import Any


def adjust(module: Any) -> Iterator[None]:
    yield

    original = module.DistributedDataParallel

    def without_copies(module: Any, **options: Any) -> Any:
        from fairseq.modules.transformer_layer import TransformerEncoderLayerBase

        copies = [
            f"{name}.{copy}" if name else copy
            for name, layer in module.named_modules()
            if isinstance(layer, TransformerEncoderLayerBase)
            for copy, _ in layer.named_parameters(recurse=False)
        ]
        if copies:
            original._set_params_and_buffers_to_ignore_for_model(module, copies)
        return original(module=module, **options)

    module.DistributedDataParallel = without_copies
