"""``--bf16`` stops with ``'NoneType' object has no attribute 'xla_device'``.

fairseq's option parser takes every ``--bf16`` run for a TPU run. Without PyTorch/XLA there is no TPU, so ``tpu`` stays
off unless it was asked for by name.
"""

import functools
import importlib.util
import sys
from collections.abc import Iterator
from typing import Any


def adjust(module: Any) -> Iterator[None]:
    yield

    original = module.parse_args_and_arch

    @functools.wraps(original)
    def parse_args_and_arch(parser: Any, input_args: list[str] | None = None, *args: Any, **kwargs: Any) -> Any:
        result = original(parser, input_args, *args, **kwargs)
        given = sys.argv[1:] if input_args is None else input_args
        if "--tpu" not in given and importlib.util.find_spec("torch_xla") is None:
            options = result[0] if isinstance(result, tuple) else result
            if getattr(options, "tpu", False):
                options.tpu = False
        return result

    module.parse_args_and_arch = parse_args_and_arch
