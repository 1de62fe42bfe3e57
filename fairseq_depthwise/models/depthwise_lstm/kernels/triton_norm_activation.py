"""Triton kernels: layer norm, activation and dropout inside the hidden net (Eq 6 and Eq 5), one pass over the rows.

The gradient computes the norm again from the projection, so nothing but inputs is kept for the backward pass. R is the
number of rows (positions), H the width of the hidden net before its activation.
"""

# Kernels stay without types, because Triton's compiler reads annotations and knows its own alone.
# mypy: allow-untyped-defs, allow-incomplete-defs

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from fairseq_depthwise.models.depthwise_lstm.kernels.triton_rows import (
    as_bytes,
    as_rows,
    drop,
    load_columns,
    program_limit,
    start_programs,
)
from fairseq_depthwise.modules.activations import ACTIVATIONS


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
    activation: tl.constexpr, halves: tl.constexpr,
):  # fmt: skip
    # A row is two blocks whatever the activation, so that the GLU's partners stand at the same place of each.
    half: tl.constexpr = (width + 1) // 2
    result_width: tl.constexpr = half if halves else width
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

    if halves:  # the GLU
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
    halves: tl.constexpr,
):  # fmt: skip
    half: tl.constexpr = (width + 1) // 2
    result_width: tl.constexpr = half if halves else width
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
        if not halves:
            right_grad = load_columns(grad_activated + row * result_width, right, right_mask)
            if keep is not None:
                right_grad = drop(right_grad, keep + row * result_width, right, right_mask, scale)

        left_normal, right_normal, inverse = _normalize_halves(
            left_values, right_values, left_mask, right_mask, width, eps
        )
        left_scaled = left_normal * left_weight + left_bias
        right_scaled = right_normal * right_weight + right_bias
        if halves:  # the GLU
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
    weight: Tensor,
    bias: Tensor,
    *,
    activation: str,
    keep: Tensor | None,
    scale: float,
    eps: float,
) -> Tensor:
    """Compute ``dropout(activation(LN(projected) * weight + bias))``, the inside of Eq 6.

    Args:
        projected: ... x H.
        weight, bias: H.
        activation: a name in ``TRITON_ACTIVATIONS``.
        keep: None, or what dropout keeps, boolean, of the result's size; multiplied by ``scale``.

    Returns ... x H, or H/2 where the activation halves, in the type of ``projected``.
    """
    kept = None if keep is None else as_rows(keep).contiguous()
    activated = _NormActivation.apply(as_rows(projected), weight, bias, kept, (scale, eps), activation)
    return activated.view(*projected.shape[:-1], -1)


class _NormActivation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        *tensors, numbers, activation = given
        projected, weight, bias, keep = tensors
        rows, width = projected.shape
        known = ACTIVATIONS[activation]
        block = triton.next_power_of_2((width + 1) // 2)
        ctx.constants = {"width": width, "block": block, "columns": 2 * block}
        ctx.constants |= {"activation": activation, "halves": known.halves}
        ctx.numbers = numbers
        ctx.save_for_backward(*tensors)
        activated = projected.new_empty(rows, known.width(width))
        start_programs(
            _norm_activation_kernel, rows, activated, projected, weight, bias, as_bytes(keep), projected.stride(0),
            *numbers, **ctx.constants,
        )  # fmt: skip
        return activated

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_activated: Tensor) -> Any:
        projected, weight, bias, keep = ctx.saved_tensors
        rows, width = projected.shape
        programs = min(rows, program_limit(projected.device, ctx.constants["columns"]))
        partial = projected.new_empty(programs, 2, width, dtype=torch.float32)
        grad = torch.empty_like(projected, memory_format=torch.contiguous_format)
        start_programs(
            _norm_activation_backward_kernel, programs, partial, grad, grad_activated.contiguous(), projected, weight,
            bias, as_bytes(keep), rows, grad.stride(0), projected.stride(0), *ctx.numbers, **ctx.constants,
        )  # fmt: skip
        grad_weight, grad_bias = partial.sum(dim=0).to(weight.dtype)
        return grad, grad_weight, grad_bias, None, None, None
