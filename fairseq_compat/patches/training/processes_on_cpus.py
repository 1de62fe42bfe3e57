"""``--ddp-backend pytorch_ddp``, the default, stops on CPUs: PyTorch is given the number of a GPU for the model.

It takes none for a model on a CPU.
"""

from collections.abc import Iterator
from typing import Any


def adjust(module: Any) -> Iterator[None]:
    yield

    original = module.DistributedDataParallel

    def on_its_device(module: Any, *, device_ids: Any = None, output_device: Any = None, **options: Any) -> Any:
        if not any(parameter.device.type == "cpu" for parameter in module.parameters()):
            options |= {"device_ids": device_ids, "output_device": output_device}
        return original(module=module, **options)

    module.DistributedDataParallel = on_its_device
