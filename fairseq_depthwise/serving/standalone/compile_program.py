"""Compiles a program for this machine's CPU: ``python compile_program.py PROGRAM PACKAGE SETTINGS``.

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
    """Leave out what takes most of the time, on versions of PyTorch that do it.

    These are notes of where operations stand, a search for those of equal sizes, and a proof for each view of which
    dimensions it joins and splits, where the strides say the same.
    """
    import torch._dynamo.config  # takes a second, which only those who trace are to wait
    from torch._subclasses import fake_impls
    from torch.fx import config as fx_config

    with (
        mock.patch.object(fake_impls, "_view_has_unbacked_input", return_value=True, create=True),
        mock.patch.object(fx_config, "do_not_emit_stack_traces", True, create=True),
        torch._dynamo.config.patch(fake_tensor_cache_enabled=False),
    ):
        yield


if __name__ == "__main__":
    from torch._inductor import aoti_compile_and_package, config

    program, package, configs = *sys.argv[1:3], json.loads(sys.argv[3])
    if hasattr(config.aot_inductor, "precompile_headers"):
        # They would be in /tmp, under a name that anyone could take before, and serve one program only.
        configs["aot_inductor.precompile_headers"] = False
    torch.set_num_threads(configs["cpp.threads"])  # with which products are tried
    # Weights are laid out for the CPU (Inductor's freezing) only where no gradients are wanted.
    with quick_tracing(), torch.no_grad():
        aoti_compile_and_package(torch.export.load(program), package_path=package, inductor_configs=configs)
