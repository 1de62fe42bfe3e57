"""``auto`` checks the kernels where they are first used, falls back where they differ, and disturbs nothing."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from random_cells import build_cell, inputs
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from triton_probe import DEVICE, PROBLEM

if PROBLEM is not None:
    pytest.skip(PROBLEM, allow_module_level=True)

from fairseq_depthwise.models.depthwise_lstm.cell import DepthwiseLSTMCell, DepthwiseState
from fairseq_depthwise.models.depthwise_lstm.kernels import (
    first_use,
    fused_cell,
    triton_gate_update,
    triton_norm_activation,
    triton_rows,
)

LOGGED = "--depthwise-kernel triton"


@pytest.fixture(autouse=True)
def checks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What has been checked, where ``auto`` may take the kernels: here in Triton's interpreter, if there is no GPU."""
    if DEVICE.type == "cpu":
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(fused_cell, "AUTO_DEVICES", ("cuda", "cpu"))
    monkeypatch.setattr(fused_cell, "_first_uses", {})
    monkeypatch.setattr(triton_rows, "PROGRAMS_ELSEWHERE", 2)
    fused_cell._fall_back.cache_clear()
    done: list[Any] = []
    real = first_use.find_problem

    def find_problem(*case: Any) -> str | None:
        done.append(case)
        return real(*case)

    monkeypatch.setattr(first_use, "find_problem", find_problem)
    yield done
    fused_cell._fall_back.cache_clear()


def kernel_of(cell: DepthwiseLSTMCell) -> str:
    return fused_cell.choose_kernel(
        "auto", DEVICE, fusible=True, gates=cell.gates, net=cell.hidden_net, skip=cell.attention_skip
    )


def step(cell: DepthwiseLSTMCell, tensors: tuple[Tensor, ...]) -> Tensor:
    return torch.cat(cell(tensors[0], DepthwiseState(*tensors[1:])))


def test_each_kind_of_cell_is_checked_once(checks: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    cell = build_cell(kernel="auto", dropout=0.1)
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            step(cell, inputs())
            step(build_cell(kernel="auto", dropout=0.1), inputs(length=4))
        assert len(checks) == 1
        step(cell.eval(), inputs())
        with torch.autocast(DEVICE.type, dtype=torch.bfloat16):
            step(cell, inputs())
        step(cell.bfloat16(), inputs(dtype=torch.bfloat16))
        step(build_cell(width=16, kernel="auto"), inputs(width=16))
        step(build_cell(kernel="auto", joint=True), inputs())
        step(build_cell(kernel="auto", skip=True), inputs())
    assert len(set(checks)) == len(checks) == 7
    assert LOGGED not in caplog.text
    assert set(fused_cell._first_uses.values()) == {None}


def scaled(function: Callable[..., Any], index: int, factor: float) -> Callable[..., Any]:
    """A function whose result of that number is wrong."""

    def wrong(*arguments: Any, **options: Any) -> tuple[Any, ...]:
        results = function(*arguments, **options)
        return tuple(result * factor if number == index else result for number, result in enumerate(results))

    return wrong


def without_dropout(*arguments: Any, **options: Any) -> Tensor:
    return norm_activation(*arguments, **{**options, "keep": None})


def broken(*_: Any, **__: Any) -> Any:
    raise RuntimeError("no such instruction\nand much more")


norm_activation = triton_norm_activation.norm_activation


FAULTS = {
    "inexact": ("gate_update", scaled(triton_gate_update.gate_update, 0, 1.001), "output"),
    "nan": ("gate_update", scaled(triton_gate_update.gate_update, 1, torch.nan), "output below|cell state"),
    "gradient": ("gate_update_backward", scaled(triton_gate_update.gate_update_backward, 3, 0), "gates.norm_weight"),
    "exception": ("norm_activation_backward", broken, "RuntimeError: no such instruction"),
    "dropout": ("norm_activation", without_dropout, "output"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faulty_kernels_are_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    name, function, named = FAULTS[fault]
    module = triton_gate_update if hasattr(triton_gate_update, name) else triton_norm_activation
    monkeypatch.setattr(module, name, function)
    cell, tensors = build_cell(kernel="auto", dropout=0.1), inputs()
    with caplog.at_level(logging.INFO):
        assert [kernel_of(cell), kernel_of(cell)] == ["eager", "eager"]
    assert caplog.text.count(LOGGED) == 1
    assert re.search(named, caplog.text)
    assert "much more" not in caplog.text
    fused_cell._first_uses.update(dict.fromkeys(fused_cell._first_uses, None))
    assert kernel_of(cell) == "triton"  # but for the check it would have been used
    fused_cell._first_uses.clear()
    if fault == "inexact":
        cell = build_cell(kernel="auto")
        assert torch.equal(step(cell, tensors), step(build_cell(), tensors))


def remember(saved: list[Tensor], tensor: Tensor) -> Tensor:
    saved.append(tensor)
    return tensor


def test_a_check_disturbs_nothing(checks: list[Any]) -> None:
    """Random numbers, gradients, saved tensors, autocast and modes are what they are without it."""
    results = []
    for known in (False, True):
        fused_cell._first_uses.clear()
        cell = build_cell(kernel="auto", dropout=0.3)
        if known:
            kernel_of(cell)
        torch.manual_seed(5)
        saved: list[Tensor] = []
        leaves = [tensor.requires_grad_() for tensor in inputs()]
        with torch.autograd.graph.saved_tensors_hooks(partial(remember, saved), lambda tensor: tensor):
            step(cell, (leaves[0], leaves[1], leaves[2])).sum().backward()
        again = checkpoint(step, cell, tuple(leaves), use_reentrant=False)
        again.sum().backward()
        drawn = torch.rand(3, device=DEVICE)
        with torch.inference_mode(), torch.autocast(DEVICE.type, dtype=torch.bfloat16, enabled=not known):
            kernel_of(cell.eval())
            assert torch.is_inference_mode_enabled()
            assert torch.is_autocast_enabled(DEVICE.type) is not known
        results.append(
            [drawn, again.detach(), *(leaf.grad for leaf in leaves), *(one.grad for one in cell.parameters())]
        )
        results[-1].append(torch.tensor(len(saved)))
    assert len(checks) == 4
    for first, second in zip(*results, strict=True):
        assert torch.equal(first, second)


def test_where_nothing_can_be_checked_now_the_readable_cell_is_used(
    monkeypatch: pytest.MonkeyPatch, checks: list[Any]
) -> None:
    """While a model is compiled, a CUDA graph captured, or within a backward pass; what is known by then counts."""
    cell = build_cell(kernel="auto")
    arguments: dict[str, Any] = {"fusible": True, "gates": cell.gates, "net": cell.hidden_net}
    with monkeypatch.context() as patch:
        patch.setattr(torch.compiler, "is_compiling", lambda: True)
        assert kernel_of(cell) == "eager"
    chosen = []
    leaf = torch.ones(1, requires_grad=True)
    leaf.register_hook(lambda grad: chosen.append(kernel_of(cell)))
    leaf.sum().backward()
    assert chosen == ["eager"]
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(fused_cell, "_missing_triton", lambda device: None)
    assert fused_cell.choose_kernel("auto", torch.device("cuda"), **arguments) == "eager"
    assert not checks
    kind = first_use.kind_of(cell.gates, cell.hidden_net, torch.device("cuda"), skip=False)
    fused_cell._first_uses[torch.device("cuda"), kind] = None
    assert fused_cell.choose_kernel("auto", torch.device("cuda"), **arguments) == "triton"
