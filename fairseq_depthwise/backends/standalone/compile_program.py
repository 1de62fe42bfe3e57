"""Compiles a program for this machine's CPU; standard input names it, as JSON: PROGRAM, PACKAGE, SETTINGS.

It is started while the program is still being traced, and imports only PyTorch; fairseq and this package would take
longer.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch


@contextmanager
def quick_tracing() -> Iterator[None]:
    """Skip what takes most of the time, in versions of PyTorch that do it.

    That is: noting the source lines of operations, looking for operations of equal sizes, and proving for each view
    which dimensions it joins and splits, which its strides tell as well. Garbage collection is another tenth.
    """
    import torch._dynamo.config  # takes a second, for which only tracing should wait
    from torch._subclasses import fake_impls
    from torch.fx import config as fx_config

    with (
        mock.patch.object(fake_impls, "_view_has_unbacked_input", return_value=True, create=True),
        mock.patch.object(fx_config, "do_not_emit_stack_traces", True, create=True),
        torch._dynamo.config.patch(fake_tensor_cache_enabled=False),
    ):
        gc.disable()
        try:
            yield
        finally:
            gc.enable()


def without_trials(choices: list[Any]) -> list[Any]:
    """Drop PyTorch's own product for up to 2**18 weights: Inductor's wins every trial, and a trial takes 2.5 s."""
    from torch._inductor.select_algorithm import ExternKernelCaller

    of_inductor = [choice for choice in choices if not isinstance(choice, ExternKernelCaller)]
    if not of_inductor:
        return choices
    # For N x in times in x out: the widths of the output and of the first operand.
    first = of_inductor[0]
    weights = first.layout.size[-1] * first.input_nodes[0].get_size()[-1]
    return of_inductor if weights <= 2**18 else choices


if __name__ == "__main__":
    from torch._inductor import aoti_compile_and_package, config, select_algorithm

    program, package, settings = json.load(sys.stdin)
    configs = {name: settings[name] for name in settings.keys() & config.get_config_copy()}  # that this version has
    if hasattr(select_algorithm, "add_preprocessing_fn"):
        select_algorithm.add_preprocessing_fn(without_trials)
    torch.set_num_threads(configs["cpp.threads"])  # for the trials of products
    # Inductor's freezing lays out weights for the CPU, but only if no gradients are needed.
    with quick_tracing(), torch.no_grad():
        aoti_compile_and_package(torch.export.load(program), package_path=package, inductor_configs=configs)
