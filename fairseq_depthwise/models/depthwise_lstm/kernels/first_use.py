"""Compares the Triton kernels with the readable cell on the device that they are about to be used on."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from fairseq_compat.errors import first_line
from fairseq_depthwise.models.depthwise_lstm.kernels.fused_cell import run_fused

if TYPE_CHECKING:
    from fairseq_depthwise.models.depthwise_lstm.cell import DepthwiseLSTMCell, Gates, HiddenNet

#: How many times as far from the exact values as the readable cell the kernels may be, and roundings besides.
_TIMES, _ROUNDINGS = 4, 2


class CellKind(NamedTuple):
    """What the kernels are compiled for."""

    width: int
    hidden_width: int
    two_layers: bool
    activation: str
    dropout: bool
    joint: bool  # of the gates' norms
    skip: bool  # whether the attention's output is added to h
    dtype: torch.dtype  # of the parameters
    autocast: torch.dtype | None  # what autocast computes products in, if it is on


def kind_of(gates: Gates, net: HiddenNet, device: torch.device, *, skip: bool) -> CellKind:
    """Return what a cell's kernels are compiled for."""
    return CellKind(
        width=gates.embed_dim,
        hidden_width=net.first.out_features,
        two_layers=net.second is not None,
        activation=net.activation,
        dropout=net.dropout.active or net.activation_dropout.active,
        joint=gates.joint,
        skip=skip,
        dtype=gates.norm_weight.dtype,
        autocast=torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else None,
    )


def find_problem(device: torch.device, kind: CellKind) -> str | None:
    """Return why the kernels cannot be trusted on a device, or None.

    They compute a step of random numbers, forward and backward. It happens in a thread of its own, because gradient
    mode, autocast, hooks on saved tensors and the like belong to a thread; the random numbers have their own generator.
    """
    try:
        with ThreadPoolExecutor(1) as executor:
            return executor.submit(_difference, device, kind).result()
    except Exception as error:  # of the driver, a compiler, the kernels: many kinds
        return f"{type(error).__name__}: {first_line(error)}"


def _difference(device: torch.device, kind: CellKind) -> str | None:
    """Return how the kernels' results differ beyond rounding, or None.

    Both ways are compared with the readable cell in float64, so that what is rounding here, as TF32's, is none there.
    """
    from fairseq_depthwise.models.depthwise_lstm.kernels.triton_rows import program_limit

    generator = torch.Generator(device).manual_seed(1)
    cell = _random_cell(device, kind, generator)
    # Programs of the backward kernels take two rows, one of them three.
    rows = 2 * program_limit(device, 3 * kind.width) + 1
    widths = (_attended(kind), kind.width, kind.width, kind.width, kind.width)
    tensors = [torch.randn(rows, 1, width, device=device, generator=generator).to(kind.dtype) for width in widths]
    exact = _results(copy.deepcopy(cell).double(), "eager", [tensor.double() for tensor in tensors], None)
    readable = _results(cell, "eager", tensors, kind.autocast)
    fused = _results(cell, "triton", tensors, kind.autocast)
    rounding = torch.finfo(kind.autocast or kind.dtype).eps
    for name, value in exact.items():
        largest = value.abs().max()
        expected, actual = (float((other[name] - value).abs().max() / largest) for other in (readable, fused))
        limit = _TIMES * expected + _ROUNDINGS * rounding
        if not actual <= limit:  # or it is not a number
            precision = str(kind.dtype if kind.autocast is None else kind.autocast).removeprefix("torch.")
            return (
                f"{name} differs from the readable cell's by {actual:.1e} of its largest value, where rounding makes "
                f"{limit:.1e} (width {kind.width}, {precision}, {device})"
            )
    return None


def _attended(kind: CellKind) -> int:
    """Return the width of the attention's output; without a skip only the products, not the kernels, read it."""
    return kind.width if kind.skip else 16


def _results(
    cell: DepthwiseLSTMCell, kernel: str, tensors: list[Tensor], autocast: torch.dtype | None
) -> dict[str, Tensor]:
    """Return output, cell state and all gradients of a step, by name, in float64.

    Args:
        kernel: "eager" or "triton".
        tensors: attention's output, output and cell state below, and the gradients of output and cell state.
    """
    from fairseq_depthwise.models.depthwise_lstm.cell import NORM_EPS, DepthwiseState

    attended, output, below = (tensor.detach().requires_grad_() for tensor in tensors[:3])
    with torch.autocast(attended.device.type, dtype=autocast, enabled=autocast is not None, cache_enabled=False):
        if kernel == "eager":
            above = cell(attended, DepthwiseState(output, below))
        else:
            joined = torch.cat([output, attended], dim=-1)
            skipped = attended if cell.attention_skip else None
            above = DepthwiseState(*run_fused(kernel, joined, skipped, below, cell.gates, cell.hidden_net, NORM_EPS))
    leaves = {"attention": attended, "output below": output, "cell state below": below, **dict(cell.named_parameters())}
    outward = [grad.to(result.dtype) for grad, result in zip(tensors[3:], above, strict=True)]
    grads = torch.autograd.grad(list(above), list(leaves.values()), outward)
    named = zip((f"gradient of {name}" for name in leaves), grads, strict=True)
    results = {"output": above.output, "cell state": above.cell, **dict(named)}
    return {name: value.detach().double() for name, value in results.items()}


def _random_cell(device: torch.device, kind: CellKind, generator: torch.Generator) -> DepthwiseLSTMCell:
    """Return a cell with random parameters, made without PyTorch's own generator."""
    from fairseq_depthwise.models.depthwise_lstm.cell import DepthwiseLSTMCell, Gates, HiddenNet

    input_dim = kind.width + _attended(kind)
    with torch.device("meta"):
        net = HiddenNet(
            input_dim=input_dim,
            embed_dim=kind.width,
            hidden_dim=kind.hidden_width if kind.two_layers else None,
            activation=kind.activation,
        )
        gates = Gates(input_dim=input_dim, embed_dim=kind.width, joint=kind.joint)
        cell = DepthwiseLSTMCell(gates=gates, hidden_net=net, attention_skip=kind.skip, kernel="eager")
    cell.to_empty(device=device)
    with torch.no_grad():
        for name, parameter in cell.named_parameters():
            if "norm" in name:
                parameter.normal_(0.5, 0.5, generator=generator)
            else:
                parameter.normal_(0.0, parameter.size(1) ** -0.5, generator=generator)
    if kind.dropout:
        # In the place of modules of another class, and called as they are.
        net.activation_dropout, net.dropout = (_FixedDropout(generator, device) for _ in range(2))  # type: ignore[assignment]
    return cell.to(kind.dtype)


class _FixedDropout(nn.Module):
    """Dropout whose mask is drawn once, so that each way of computing a cell has the same."""

    scale = 1.25

    def __init__(self, generator: torch.Generator, device: torch.device) -> None:
        super().__init__()
        self.seed = int(torch.randint(2**31, (), generator=generator, device=device))

    def mask(self, shape: torch.Size, device: torch.device) -> Tensor:
        generator = torch.Generator(device).manual_seed(self.seed)
        return torch.rand(shape, generator=generator, device=device) < 1 / self.scale

    def forward(self, values: Tensor) -> Tensor:
        return values * self.mask(values.shape, values.device) * self.scale
