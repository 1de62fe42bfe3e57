"""Which kernels compute a cell: its own equations, or Triton's, compared with them where they are first used."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_compat.errors import named
from fairseq_depthwise.modules.activations import ACTIVATIONS

logger = logging.getLogger(__name__)

#: Values of ``--depthwise-kernel``; ``triton`` is ``auto`` that takes Triton's interpreter, too, where that is chosen.
KERNELS = ("auto", "eager", "triton")

#: What the kernels compute.
TRITON_ACTIVATIONS = ("glu", "gelu", "relu")

#: How many times as far from the exact values as the readable equations the kernels may be, and roundings besides.
_TIMES, _ROUNDINGS = 4, 2

#: (device, kind of a cell) -> why the kernels cannot be trusted there, or None, for what has been used.
problems: dict[tuple[torch.device, CellKind], str | None] = {}


class CellKind(NamedTuple):
    """What the kernels are compiled for."""

    width: int
    hidden_width: int
    activation: str
    dropout: bool
    joint: bool  # of the gates' norms
    skip: bool  # whether something is added to h
    dtype: torch.dtype  # of the products
    state: torch.dtype  # of the cell state
    norms: torch.dtype  # of the norms' parameters


def use_triton(requested: str, device: torch.device, kind_of: Callable[[], CellKind]) -> bool:
    """Return whether the Triton kernels compute a cell on a device; its kind is asked for only where they might.

    Whoever compiles or traces a whole model fuses the equations, too.
    """
    interpreted = requested == "triton" and os.environ.get("TRITON_INTERPRET") == "1"
    if not (device.type == "cuda" or interpreted) or requested == "eager" or torch.compiler.is_compiling():
        return False
    kind = kind_of()
    if kind.activation not in TRITON_ACTIVATIONS:
        return False
    if (device, kind) not in problems:
        problem = problems[device, kind] = find_problem(device, kind)
        if problem is not None:
            logger.warning("the cell is computed without Triton's kernels: %s", problem)
    return problems[device, kind] is None


def find_problem(device: torch.device, kind: CellKind) -> str | None:
    """Return why the kernels cannot be trusted on a device, or None.

    It is found out in a thread of its own, because gradient mode, autocast, hooks on saved tensors and the like belong
    to a thread; the random numbers have their own generator.
    """
    try:
        with ThreadPoolExecutor(1) as executor:
            return executor.submit(_difference, device, kind).result()
    except Exception as error:  # of the driver, a compiler, the kernels, or there is no Triton: many kinds
        return named(error)


def _difference(device: torch.device, kind: CellKind) -> str | None:
    """Return how the kernels' results and gradients differ from the equations' in float64 beyond rounding, or None."""
    from fairseq_depthwise.models.depthwise_lstm.kernels.triton_gate_update import gate_update
    from fairseq_depthwise.models.depthwise_lstm.kernels.triton_norm_activation import norm_activation
    from fairseq_depthwise.models.depthwise_lstm.kernels.triton_rows import program_limit

    generator = torch.Generator(device).manual_seed(1)
    # Programs of the backward kernels take two rows, one of them three.
    rows, width, hidden = 2 * program_limit(device, 3 * kind.width) + 1, kind.width, kind.hidden_width

    def normal(*shape: int, dtype: torch.dtype, mean: float = 0.0) -> Tensor:
        return (torch.randn(shape, device=device, generator=generator) + mean).to(dtype)

    def mask(columns: int) -> Tensor | None:
        return torch.rand(rows, columns, device=device, generator=generator) < 0.8 if kind.dropout else None

    norm = [normal(hidden, dtype=kind.norms, mean=0.5), normal(hidden, dtype=kind.norms)]
    gate_norm = [normal(3, width, dtype=kind.norms, mean=0.5), normal(3, width, dtype=kind.norms)]
    values = [normal(rows, width, dtype=dtype) for dtype in (kind.dtype, kind.state, kind.dtype)]
    options = {"scale": 1.25, "eps": 1e-6}
    inside = {"keep": mask(ACTIVATIONS[kind.activation].width(hidden)), "activation": kind.activation}
    update = {"keep": mask(width), "joint": kind.joint}
    for name, fused, readable, tensors, others in (
        ("hidden net", norm_activation, _norm_activation, [normal(rows, hidden, dtype=kind.dtype), *norm], inside),
        (
            "gates and cell", gate_update, _gate_update,
            [normal(rows, 3 * width, dtype=kind.dtype), *gate_norm, *values[: 3 if kind.skip else 2]], update,
        ),
    ):  # fmt: skip
        exact = _results(readable, [tensor.double() for tensor in tensors], **options, **others)
        own, found = (_results(function, tensors, **options, **others) for function in (readable, fused))
        for number, value in enumerate(exact):
            largest = value.abs().max()
            expected, actual = (float((other[number] - value).abs().max() / largest) for other in (own, found))
            limit = _TIMES * expected + _ROUNDINGS * torch.finfo(kind.dtype).eps
            if not actual <= limit:  # or it is not a number
                return (
                    f"{name}: result {number} is {actual:.1e} of its largest value away from the equations', where "
                    f"rounding makes {limit:.1e} ({kind}, {device})"
                )
    return None


def _results(function: Callable[..., Any], tensors: Sequence[Tensor], **options: Any) -> list[Tensor]:
    """Return what a function gives and the gradients of its tensors, in float64."""
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    given = function(*leaves, **options)
    outputs = list(given) if isinstance(given, tuple) else [given]
    waves = [torch.arange(one.numel(), device=one.device).cos().view_as(one).to(one.dtype) for one in outputs]
    return [value.detach().double() for value in (*outputs, *torch.autograd.grad(outputs, leaves, waves))]


def _norm_activation(
    projected: Tensor, weight: Tensor, bias: Tensor, *, activation: str, keep: Tensor | None, scale: float, eps: float
) -> Tensor:
    """Compute what ``triton_norm_activation.norm_activation`` does."""
    normalized = F.layer_norm(projected.to(weight.dtype), (projected.size(-1),), weight, bias, eps)
    activated = ACTIVATIONS[activation].function(normalized).to(projected.dtype)
    return activated if keep is None else activated * keep * scale


def _gate_update(
    projected: Tensor,
    weight: Tensor,
    bias: Tensor,
    hidden: Tensor,
    cell: Tensor,
    skipped: Tensor | None = None,
    *,
    keep: Tensor | None,
    scale: float,
    eps: float,
    joint: bool,
) -> tuple[Tensor, Tensor]:
    """Compute what ``triton_gate_update.gate_update`` does."""
    gates = projected.to(weight.dtype).unflatten(-1, (3, -1))
    normalized = F.layer_norm(gates, gates.shape[-2:] if joint else gates.shape[-1:], eps=eps)
    input_gate, forget_gate, output_gate = (normalized * weight + bias).sigmoid().unbind(-2)
    hidden = hidden if keep is None else hidden * keep * scale
    hidden = hidden if skipped is None else hidden + skipped
    above = (cell * forget_gate + hidden * input_gate).to(cell.dtype)
    return (above * output_gate).to(cell.dtype), above
