"""Compiles a program of ``torch.export`` for this machine's CPU; run by file, so that several compile at once.

    python compile_program.py PROGRAM PACKAGE SETTINGS

It imports PyTorch only: fairseq and this package would take as long as a part of the work.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import torch


@contextmanager
def quick_tracing() -> Iterator[None]:
    """Leave out what takes half of the time to trace.

    These are notes of where each operation stands, and a search for operations of equal sizes, which where sizes are
    expressions takes longer than to compute those of a result.
    """
    import torch._dynamo.config  # takes a second, which only those who trace are to wait
    from torch.fx import config as fx_config

    with (
        mock.patch.object(fx_config, "do_not_emit_stack_traces", True, create=True),
        torch._dynamo.config.patch(fake_tensor_cache_enabled=False),
    ):
        yield


def main(program: str, package: str, settings: str) -> None:
    from torch._inductor import aoti_compile_and_package

    configs = json.loads(settings)
    torch.set_num_threads(configs["cpp.threads"])  # with which products are tried
    # Weights are laid out for the CPU (Inductor's freezing) only where no gradients are wanted.
    with quick_tracing(), torch.no_grad():
        aoti_compile_and_package(torch.export.load(program), package_path=package, inductor_configs=configs)


if __name__ == "__main__":
    main(*sys.argv[1:])
