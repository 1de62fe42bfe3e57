"""Compiles a program for this machine's CPU; standard input says which, as JSON: PROGRAM, PACKAGE, SETTINGS.

It is started while the program is being made, and imports PyTorch only; fairseq and this package would take longer.
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
    """Leave out what takes most of the time, on versions of PyTorch that do it.

    These are notes of where operations stand, a search for those of equal sizes, and a proof for each view of which
    dimensions it joins and splits, where the strides say the same. A tenth is the search for garbage.
    """
    import torch._dynamo.config  # takes a second, which only those who trace are to wait
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
    """Leave out PyTorch's own product for up to 2**18 weights: Inductor's won every trial, and a trial takes 2.5 s."""
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
    torch.set_num_threads(configs["cpp.threads"])  # with which products are tried
    # Weights are laid out for the CPU (Inductor's freezing) only where no gradients are wanted.
    with quick_tracing(), torch.no_grad():
        aoti_compile_and_package(torch.export.load(program), package_path=package, inductor_configs=configs)
