"""Faster ways through the depth-wise LSTM cell, from the parameters of the readable one.

- ``compile``: the equations as one function through ``torch.compile``.
- ``triton``: two Triton kernels around the second layer of the hidden net, with a backward pass of their own that
  keeps c, the projections, h and the cell state below, and computes everything else again.

Both project c once, for the three gates and the hidden net together. ``auto`` is triton on a CUDA device, where the
kernels compute what the readable cell does (``first_use.py``), and eager elsewhere: on a CPU the products take nearly
all the time.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from fairseq_depthwise.models.depthwise_lstm.cell import Gates, HiddenNet
    from fairseq_depthwise.models.depthwise_lstm.kernels.first_use import CellKind

logger = logging.getLogger(__name__)

KERNELS = ("auto", "eager", "compile", "triton")

#: Types of devices on which ``auto`` is triton.
AUTO_DEVICES = ("cuda",)

#: The activations that the Triton kernels compute; the other ways take any function of :mod:`torch.nn.functional`.
TRITON_ACTIVATIONS = ("glu", "gelu", "relu")

#: (device, kind of a cell) -> why the kernels cannot be trusted there, or None, for what has been used.
_first_uses: dict[tuple[torch.device, CellKind], str | None] = {}


def choose_kernel(
    requested: str, device: torch.device, *, fusible: bool, gates: Gates, net: HiddenNet, skip: bool = False
) -> str:
    """Choose what computes the cell: "eager", "compile" or "triton".

    Args:
        requested: one of ``KERNELS``.
        device: where the cell computes.
        fusible: whether its linear layers are plain; only the eager cell supports others.
        gates: the cell's gates.
        net: its hidden net.
        skip: whether the attention's output is added to the net's.
    """
    # Whoever compiles or traces the whole model fuses the equations, too.
    if requested == "eager" or (
        requested == "auto" and (device.type not in AUTO_DEVICES or torch.compiler.is_compiling())
    ):
        return "eager"
    if not fusible:
        _fall_back(requested, "its linear layers are quantized or have hooks")
        return "eager"
    kernel = "triton" if requested == "auto" else requested
    if kernel == "compile":
        problem = _compile_problem(device)
    elif net.activation not in TRITON_ACTIVATIONS:
        problem = f"the Triton kernels do not compute the activation {net.activation}"
    elif (problem := _missing_triton(device)) is None:
        if requested == "auto":
            return _checked_kernel(device, gates, net, skip=skip)
        problem = _triton_problem(device)
    if problem is not None:
        _fall_back(kernel, problem)
        return "eager"
    return kernel


def _checked_kernel(device: torch.device, gates: Gates, net: HiddenNet, *, skip: bool) -> str:
    """Return "triton" if its kernels computed on this device what the readable cell does, else "eager"."""
    from fairseq_depthwise.models.depthwise_lstm.kernels.first_use import find_problem, kind_of

    case = (device, kind_of(gates, net, device, skip=skip))
    if case not in _first_uses:
        # Nothing else may disturb a CUDA graph that is being captured; a backward pass that calls this, for a layer
        # whose activations are recomputed, occupies the thread that another one would need.
        if torch._C._current_graph_task_id() != -1 or (
            device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        ):
            return "eager"
        _first_uses[case] = find_problem(*case)
    if (problem := _first_uses[case]) is not None:
        _fall_back("triton", problem)
        return "eager"
    return "triton"


def _missing_triton(device: torch.device) -> str | None:
    """Return what Triton lacks on a device, or None."""
    if not _has_triton():
        return "Triton is not installed"
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return f"Triton has no kernels for the device {device.type!r}"
    return None


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


@functools.cache
def _triton_problem(device: torch.device) -> str | None:
    """Return why the kernels cannot be built on a device, or None."""
    return _problem_of_trial(_try_triton, device)


@functools.cache
def _compile_problem(device: torch.device) -> str | None:
    """Return why ``torch.compile`` cannot be used on a device, or None."""
    return _problem_of_trial(_try_compile, device)


def _problem_of_trial(trial: Callable[[torch.device], None], device: torch.device) -> str | None:
    """Build a first kernel, which shows what is missing (a C++ compiler, a driver) as one of many exceptions."""
    try:
        trial(device)
    except Exception as error:
        first_line = str(error).strip().partition("\n")[0]
        return f"{type(error).__name__}: {first_line}"
    return None


def _try_compile(device: torch.device) -> None:
    torch.compile(torch.sigmoid)(torch.zeros(2, device=device))


def _try_triton(device: torch.device) -> None:
    """Run a step of one position forward and backward, which builds all kernels."""
    with torch.inference_mode(False), torch.enable_grad():
        row = torch.ones(1, 4, device=device).requires_grad_()
        square, norm = torch.ones(4, 4, device=device), torch.ones(4, device=device)
        gates = (torch.ones(12, 4, device=device), torch.ones(3, 4, device=device), torch.ones(3, 4, device=device))
        tensors = CellTensors(row, row, None, *gates, square, norm, norm, square, None, None)
        output, _ = _triton_step(tensors, CellSettings("relu", 1.0, 1.0, 1e-6, joint=False))
        torch.autograd.grad(output.sum(), row)


@functools.cache
def _fall_back(kernel: str, problem: str) -> None:
    """Say once per reason that the readable path is taken."""
    logger.info("--depthwise-kernel %s is not possible here, so eager is used: %s", kernel, problem)


class CellTensors(NamedTuple):
    """What a step is computed from; R positions, width d, hidden width H before the activation and H' after it."""

    joined: Tensor  # c, R x input_dim
    cell: Tensor  # R x d, the state below
    skipped: Tensor | None  # R x d, added to h
    gate_weight: Tensor  # 3d x input_dim: input, forget, output
    gate_norm_weight: Tensor  # 3 x d
    gate_norm_bias: Tensor  # 3 x d
    first_weight: Tensor  # H x input_dim
    norm_weight: Tensor  # H
    norm_bias: Tensor  # H
    second_weight: Tensor | None  # d x H'
    keep_activated: Tensor | None  # R x H', what dropout keeps
    keep_hidden: Tensor | None  # R x d


class CellSettings(NamedTuple):
    """The numbers of a step; the scales are what dropout multiplies by."""

    activation: str
    activation_scale: float
    hidden_scale: float
    eps: float
    joint: bool  # whether the gates are normalized over all three


def run_fused(
    kernel: str, joined: Tensor, skipped: Tensor | None, cell: Tensor, gates: Gates, net: HiddenNet, eps: float
) -> tuple[Tensor, Tensor]:
    """Compute one step up the stack.

    Args:
        kernel: "compile" or "triton".
        joined: c, T x B x input_dim.
        skipped: what is added to h, T x B x d, or None.
        cell: the cell state below, T x B x d.
        gates: holds the gates' parameters.
        net: holds the hidden net's parameters.
        eps: of the layer norms.

    Returns:
        output and cell state, T x B x d each.
    """
    # Drawn here, so that what follows is a function of tensors that can be computed again.
    keep_activated, keep_hidden = _masks(net, cell)
    tensors = CellTensors(
        joined=joined.reshape(-1, joined.size(-1)),
        cell=cell.reshape(-1, cell.size(-1)),
        skipped=None if skipped is None else skipped.reshape(-1, cell.size(-1)),
        gate_weight=gates.projection.weight,
        gate_norm_weight=gates.norm_weight,
        gate_norm_bias=gates.norm_bias,
        first_weight=net.first.weight,
        norm_weight=net.norm.weight,
        norm_bias=net.norm.bias,
        second_weight=None if net.second is None else net.second.weight,
        keep_activated=keep_activated,
        keep_hidden=keep_hidden,
    )
    settings = CellSettings(net.activation, net.activation_dropout.scale, net.dropout.scale, eps, gates.joint)
    step = _compiled_step() if kernel == "compile" else _triton_step
    output, new_cell = step(tensors, settings)
    return output.view(cell.shape), new_cell.view(cell.shape)


def finish_fused(
    projected: Tensor, skipped: Tensor | None, cell: Tensor, gates: Gates, net: HiddenNet, eps: float
) -> tuple[Tensor, Tensor]:
    """Compute the step from what c is projected to, through the Triton kernels and without gradients.

    Args:
        projected: T x B x (3d + H), gates first; the other arguments as in :func:`run_fused`.
    """
    from fairseq_depthwise.models.depthwise_lstm.kernels.triton_gate_update import gate_update
    from fairseq_depthwise.models.depthwise_lstm.kernels.triton_norm_activation import norm_activation

    keep_activated, keep_hidden = _masks(net, cell)
    rows, below = projected.reshape(-1, projected.size(-1)), cell.reshape(-1, cell.size(-1))
    hidden = norm_activation(
        rows,
        3 * below.size(1),
        net.norm.weight,
        net.norm.bias,
        activation=net.activation,
        keep=keep_activated,
        scale=net.activation_dropout.scale,
        eps=eps,
    )
    if net.second is not None:
        hidden = net.second(hidden)
    output, new_cell = gate_update(
        rows, gates.norm_weight, gates.norm_bias, hidden, below, keep=keep_hidden, scale=net.dropout.scale, eps=eps,
        skipped=None if skipped is None else skipped.reshape(below.shape), joint=gates.joint,
    )  # fmt: skip
    return output.view(cell.shape), new_cell.view(cell.shape)


def _masks(net: HiddenNet, cell: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Draw the dropout masks of the activation (R x H/2) and of h (R x d), in the order of the readable cell."""
    activated = None
    if net.second is not None:
        activated = net.activation_dropout.mask(torch.Size((*cell.shape[:-1], net.second.in_features)), cell.device)
    hidden = net.dropout.mask(cell.shape, cell.device)
    return (
        None if activated is None else activated.view(-1, activated.size(-1)),
        None if hidden is None else hidden.view(-1, hidden.size(-1)),
    )


def _step(tensors: CellTensors, settings: CellSettings) -> tuple[Tensor, Tensor]:
    """Compute Eqs 2-8 with one product for all that c is projected to; what ``compile`` compiles."""
    cell, eps = tensors.cell, settings.eps
    width = cell.size(-1)
    projected = F.linear(tensors.joined, torch.cat([tensors.gate_weight, tensors.first_weight]))
    gates, hidden = projected.split([3 * width, projected.size(-1) - 3 * width], dim=-1)
    hidden = F.layer_norm(hidden, (hidden.size(-1),), tensors.norm_weight, tensors.norm_bias, eps)
    hidden = getattr(F, settings.activation)(hidden)
    if tensors.second_weight is not None:
        hidden = _keep(hidden, tensors.keep_activated, settings.activation_scale)
        hidden = F.linear(hidden, tensors.second_weight)
    hidden = _keep(hidden, tensors.keep_hidden, settings.hidden_scale)
    if tensors.skipped is not None:
        hidden = hidden + tensors.skipped
    normalized = F.layer_norm(gates.unflatten(-1, (3, width)), (3, width) if settings.joint else (width,), eps=eps)
    logits = normalized * tensors.gate_norm_weight + tensors.gate_norm_bias
    input_gate, forget_gate, output_gate = torch.sigmoid(logits).unbind(-2)
    new_cell = cell * forget_gate + hidden * input_gate
    return new_cell * output_gate, new_cell


def _keep(values: Tensor, keep: Tensor | None, scale: float) -> Tensor:
    return values if keep is None else values * keep * scale


@functools.cache
def _compiled_step() -> Any:
    return torch.compile(_step, dynamic=True)


def _triton_step(tensors: CellTensors, settings: CellSettings) -> tuple[Tensor, Tensor]:
    device = tensors.joined.device.type
    if torch.is_autocast_enabled(device):
        # What the products' operands are cast to; the norms and the cell state keep their precision.
        dtype = torch.get_autocast_dtype(device)
        tensors = tensors._replace(
            joined=tensors.joined.to(dtype),
            gate_weight=tensors.gate_weight.to(dtype),
            first_weight=tensors.first_weight.to(dtype),
            second_weight=None if tensors.second_weight is None else tensors.second_weight.to(dtype),
        )
    result: tuple[Tensor, Tensor] = _TritonCell.apply(settings, *tensors)
    return result


class _TritonCell(torch.autograd.Function):
    """:func:`_step` with two kernels forward and two backward."""

    @staticmethod
    def forward(ctx: Any, settings: CellSettings, *given: Any) -> tuple[Tensor, Tensor]:
        from fairseq_depthwise.models.depthwise_lstm.kernels.triton_gate_update import gate_update

        tensors = CellTensors(*given)
        with torch.autocast(tensors.joined.device.type, enabled=False):
            projected = tensors.joined @ torch.cat([tensors.gate_weight, tensors.first_weight]).T
            hidden = activated = _TritonCell.activated(projected, tensors, settings)
            if tensors.second_weight is not None:
                hidden = activated @ tensors.second_weight.T
            result = gate_update(
                projected, tensors.gate_norm_weight, tensors.gate_norm_bias, hidden, tensors.cell,
                keep=tensors.keep_hidden, scale=settings.hidden_scale, eps=settings.eps, skipped=tensors.skipped,
                joint=settings.joint,
            )  # fmt: skip
        # The activation is computed again, also where it is h.
        ctx.save_for_backward(*tensors, projected, None if tensors.second_weight is None else hidden)
        ctx.settings = settings
        ctx.set_materialize_grads(False)
        return result

    @staticmethod
    def activated(projected: Tensor, tensors: CellTensors, settings: CellSettings) -> Tensor:
        from fairseq_depthwise.models.depthwise_lstm.kernels.triton_norm_activation import norm_activation

        return norm_activation(
            projected, 3 * tensors.cell.size(1), tensors.norm_weight, tensors.norm_bias, activation=settings.activation,
            keep=tensors.keep_activated, scale=settings.activation_scale, eps=settings.eps,
        )  # fmt: skip

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor | None, grad_cell: Tensor | None) -> Any:
        from fairseq_depthwise.models.depthwise_lstm.kernels.triton_gate_update import gate_update_backward
        from fairseq_depthwise.models.depthwise_lstm.kernels.triton_norm_activation import norm_activation_backward

        *given, projected, hidden = ctx.saved_tensors
        tensors, settings = CellTensors(*given), ctx.settings
        start = 3 * tensors.cell.size(1)
        grad_projected = torch.empty_like(projected)
        activated = _TritonCell.activated(projected, tensors, settings)
        grad_hidden, grad_below, grad_skipped, *grad_gate_norm = gate_update_backward(
            grad_output, grad_cell, projected, tensors.gate_norm_weight, tensors.gate_norm_bias,
            activated if hidden is None else hidden, tensors.cell, keep=tensors.keep_hidden,
            scale=settings.hidden_scale, eps=settings.eps, skipped=tensors.skipped, joint=settings.joint,
            grad_projected=grad_projected,
        )  # fmt: skip
        grad_second = None
        if tensors.second_weight is not None:
            grad_second = grad_hidden.T @ activated
            grad_hidden = grad_hidden @ tensors.second_weight
        grad_norm = norm_activation_backward(
            grad_hidden, projected, start, tensors.norm_weight, tensors.norm_bias, activation=settings.activation,
            keep=tensors.keep_activated, scale=settings.activation_scale, eps=settings.eps,
            grad_projected=grad_projected,
        )  # fmt: skip
        grad_joined = grad_projected @ torch.cat([tensors.gate_weight, tensors.first_weight])
        grad_first = grad_projected.T @ tensors.joined
        return (
            None, grad_joined, grad_below, grad_skipped, grad_first[:start], *grad_gate_norm, grad_first[start:],
            *grad_norm, grad_second, None, None,
        )  # fmt: skip
