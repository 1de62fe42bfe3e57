"""Triton kernels: layer norm, activation and dropout inside the hidden net (Eq 6 and Eq 5), one pass over the rows.

The gradient computes the norm again from the projection, so nothing but inputs is kept for the backward pass. R is the
number of rows (positions), H the width of the hidden net before its activation.
"""

# Kernels stay without types, because Triton's compiler reads annotations and knows its own alone.
# mypy: allow-untyped-defs, allow-incomplete-defs

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fairseq_depthwise.models.depthwise_lstm.kernels.fused_cell import TRITON_ACTIVATIONS
from fairseq_depthwise.models.depthwise_lstm.kernels.triton_rows import (
    as_bytes,
    check_rows,
    drop,
    load_columns,
    program_limit,
    start_programs,
)


@triton.jit
def _normalize_halves(left, right, left_mask, right_mask, width: tl.constexpr, eps):
    """Normalize both halves of a row; also 1 / the deviation. Two passes, because E[x^2] - E[x]^2 cancels."""
    mean = tl.sum(left + right) / width
    left = tl.where(left_mask, left - mean, 0.0)
    right = tl.where(right_mask, right - mean, 0.0)
    inverse = 1.0 / tl.sqrt(tl.sum(left * left + right * right) / width + eps)
    return left * inverse, right * inverse, inverse


@triton.jit
def _activate(value, activation: tl.constexpr):
    """Return the activation and its slope."""
    if activation == "gelu":
        below = 0.5 * (1.0 + tl.erf(value * 0.7071067811865476))  # the normal distribution up to value
        result = value * below
        slope = below + value * 0.3989422804014327 * tl.exp(-0.5 * value * value)
    else:
        result = tl.where(value <= 0.0, 0.0, value)  # not a maximum: NaN stays NaN
        slope = tl.where(value <= 0.0, 0.0, 1.0)
    return result, slope


@triton.jit
def _norm_activation_kernel(
    activated, projected, weight, bias, keep, projected_stride, scale, eps, width: tl.constexpr, block: tl.constexpr,
    activation: tl.constexpr,
):  # fmt: skip
    # A row is two blocks whatever the activation, so that the GLU's partners stand at the same place of each.
    half: tl.constexpr = (width + 1) // 2
    result_width: tl.constexpr = half if activation == "glu" else width
    left = tl.arange(0, block)
    right = half + left
    left_mask = left < half
    right_mask = right < width

    row = tl.program_id(0).to(tl.int64)  # row * width can pass 2^31
    source = projected + row * projected_stride
    target = activated + row * result_width
    left_values = load_columns(source, left, left_mask)
    right_values = load_columns(source, right, right_mask)
    left_normal, right_normal, _ = _normalize_halves(left_values, right_values, left_mask, right_mask, width, eps)
    left_scaled = left_normal * load_columns(weight, left, left_mask) + load_columns(bias, left, left_mask)
    right_scaled = right_normal * load_columns(weight, right, right_mask) + load_columns(bias, right, right_mask)

    if activation == "glu":
        left_result = left_scaled * tl.sigmoid(right_scaled)
    else:
        left_result, _ = _activate(left_scaled, activation)
        right_result, _ = _activate(right_scaled, activation)
        if keep is not None:
            right_result = drop(right_result, keep + row * result_width, right, right_mask, scale)
        tl.store(target + right, right_result, mask=right_mask)
    if keep is not None:
        left_result = drop(left_result, keep + row * result_width, left, left_mask, scale)
    tl.store(target + left, left_result, mask=left_mask)


# Without do_not_specialize each new kind of row count (1, a multiple of 16, others) would compile the kernel again.
@triton.jit(do_not_specialize=["rows"])
def _norm_activation_backward_kernel(
    partial, grad_projected, grad_activated, projected, weight, bias, keep, rows, grad_projected_stride,
    projected_stride, scale, eps, width: tl.constexpr, block: tl.constexpr, activation: tl.constexpr,
):  # fmt: skip
    half: tl.constexpr = (width + 1) // 2
    result_width: tl.constexpr = half if activation == "glu" else width
    left = tl.arange(0, block)
    right = half + left
    left_mask = left < half
    right_mask = right < width
    left_weight = load_columns(weight, left, left_mask)
    right_weight = load_columns(weight, right, right_mask)
    left_bias = load_columns(bias, left, left_mask)
    right_bias = load_columns(bias, right, right_mask)
    zeros = tl.zeros([block], dtype=tl.float32)
    left_weight_sum, right_weight_sum = zeros, zeros
    left_bias_sum, right_bias_sum = zeros, zeros

    # Two stages: the next row is on its way while this one is computed.
    for index in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=2):
        row = tl.cast(index, tl.int64)
        left_values = load_columns(projected + row * projected_stride, left, left_mask)
        right_values = load_columns(projected + row * projected_stride, right, right_mask)
        left_grad = load_columns(grad_activated + row * result_width, left, left_mask)
        if keep is not None:
            left_grad = drop(left_grad, keep + row * result_width, left, left_mask, scale)
        if activation != "glu":
            right_grad = load_columns(grad_activated + row * result_width, right, right_mask)
            if keep is not None:
                right_grad = drop(right_grad, keep + row * result_width, right, right_mask, scale)

        left_normal, right_normal, inverse = _normalize_halves(
            left_values, right_values, left_mask, right_mask, width, eps
        )
        left_scaled = left_normal * left_weight + left_bias
        right_scaled = right_normal * right_weight + right_bias
        if activation == "glu":
            gate = tl.sigmoid(right_scaled)
            right_grad = left_grad * left_scaled * gate * (1.0 - gate)
            left_grad = left_grad * gate
        else:
            _, left_slope = _activate(left_scaled, activation)
            _, right_slope = _activate(right_scaled, activation)
            left_grad *= left_slope
            right_grad *= right_slope
        left_weight_sum += left_grad * left_normal
        right_weight_sum += right_grad * right_normal
        left_bias_sum += left_grad
        right_bias_sum += right_grad

        left_grad *= left_weight
        right_grad *= right_weight
        mean = tl.sum(left_grad + right_grad) / width
        slope = tl.sum(left_grad * left_normal + right_grad * right_normal) / width
        target = grad_projected + row * grad_projected_stride
        tl.store(target + left, inverse * (left_grad - mean - left_normal * slope), mask=left_mask)
        tl.store(target + right, inverse * (right_grad - mean - right_normal * slope), mask=right_mask)

    target = partial + tl.program_id(0).to(tl.int64) * (2 * width)
    tl.store(target + left, left_weight_sum, mask=left_mask)
    tl.store(target + right, right_weight_sum, mask=right_mask)
    tl.store(target + width + left, left_bias_sum, mask=left_mask)
    tl.store(target + width + right, right_bias_sum, mask=right_mask)


def norm_activation(
    projected: Tensor,
    start: int,
    weight: Tensor,
    bias: Tensor,
    *,
    activation: str,
    keep: Tensor | None,
    scale: float,
    eps: float,
) -> Tensor:
    """Compute ``dropout(activation(LN(projected[:, start:]) * weight + bias))``, the inside of Eq 6.

    Args:
        projected: R x (start + H), rows contiguous.
        weight: H; ``bias`` likewise.
        activation: "glu" (first half times sigmoid of the second), "gelu" (by erf) or "relu".
        keep: None, or what dropout keeps, boolean or bytes, of the result's size; multiplied by ``scale``.

    Returns:
        R x H/2 with the GLU, else R x H, in the type of ``projected``.
    """
    check_rows(projected)
    rows, width = projected.size(0), projected.size(1) - start
    if activation not in TRITON_ACTIVATIONS:
        raise ValueError(f"activation {activation!r} is none of {', '.join(TRITON_ACTIVATIONS)}")
    if activation == "glu" and width % 2:
        raise ValueError(f"width {width} is odd; the GLU halves it")
    activated = projected.new_empty(rows, width // 2 if activation == "glu" else width)
    tensors = (activated, projected[:, start:], weight.contiguous(), bias.contiguous(), as_bytes(keep))
    numbers = (projected.stride(0), float(scale), float(eps))
    block = triton.next_power_of_2((width + 1) // 2)
    constants = {"width": width, "block": block, "activation": activation}
    start_programs(_norm_activation_kernel, rows, *tensors, *numbers, columns=2 * block, **constants)
    return activated


def norm_activation_backward(
    grad_activated: Tensor,
    projected: Tensor,
    start: int,
    weight: Tensor,
    bias: Tensor,
    *,
    activation: str,
    keep: Tensor | None,
    scale: float,
    eps: float,
    grad_projected: Tensor,
) -> tuple[Tensor, Tensor]:
    """Compute the gradient of :func:`norm_activation`.

    Args:
        grad_projected: as ``projected``; columns from ``start`` are written, the others stay as they are.

    Returns:
        Gradients of ``weight`` and ``bias``, H each.
    """
    check_rows(projected, grad_projected)
    rows, width = projected.size(0), projected.size(1) - start
    block = triton.next_power_of_2((width + 1) // 2)
    programs = min(rows, program_limit(projected.device, 2 * block))
    partial = projected.new_empty(programs, 2, width, dtype=torch.float32)
    tensors = (grad_projected[:, start:], grad_activated.contiguous(), projected[:, start:])
    parameters = (weight.contiguous(), bias.contiguous(), as_bytes(keep))
    numbers = (rows, grad_projected.stride(0), projected.stride(0), float(scale), float(eps))
    constants = {"width": width, "block": block, "activation": activation, "columns": 2 * block}
    start_programs(_norm_activation_backward_kernel, programs, partial, *tensors, *parameters, *numbers, **constants)
    grad_weight, grad_bias = partial.sum(dim=0)
    return grad_weight.to(weight.dtype), grad_bias.to(bias.dtype)
