"""Triton kernels: the gates' layer norms and sigmoids (Eqs 2-4), the dropout of the hidden value, new cell and output
(Eqs 7, 8), one pass over the rows.

The gradient computes the gates again from their projections, so nothing but inputs is kept for the backward pass. R is
the number of rows (positions), d the width of a gate.
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


@triton.jit
def _add(a, b, c, x, y, z):
    return a + x, b + y, c + z


@triton.jit
def _means(i, f, o, width: tl.constexpr, joint: tl.constexpr):
    """Compute the gates' means in one reduction: in three, the program's warps would wait three times.

    Joint: the mean over all three, three times.
    """
    i, f, o = tl.reduce((i, f, o), 0, _add)
    if joint:
        third = (i + f + o) / 3
        i, f, o = third, third, third
    return i / width, f / width, o / width


@triton.jit
def _normalize_gates(i, f, o, mask, width: tl.constexpr, joint: tl.constexpr, eps):
    """Normalize each gate; return them, then 1 / their deviations."""
    i_mean, f_mean, o_mean = _means(i, f, o, width, joint)
    i = tl.where(mask, i - i_mean, 0.0)
    f = tl.where(mask, f - f_mean, 0.0)
    o = tl.where(mask, o - o_mean, 0.0)
    i_variance, f_variance, o_variance = _means(i * i, f * f, o * o, width, joint)
    i_inverse = 1.0 / tl.sqrt(i_variance + eps)
    f_inverse = 1.0 / tl.sqrt(f_variance + eps)
    o_inverse = 1.0 / tl.sqrt(o_variance + eps)
    return i * i_inverse, f * f_inverse, o * o_inverse, i_inverse, f_inverse, o_inverse


@triton.jit
def _gate_update_kernel(
    output, new_cell, projected, weight, bias, hidden, cell, keep, skipped, projected_stride, scale, eps,
    width: tl.constexpr, block: tl.constexpr, joint: tl.constexpr,
):  # fmt: skip
    columns = tl.arange(0, block)
    mask = columns < width
    row = tl.program_id(0).to(tl.int64)
    source = projected + row * projected_stride
    # What comes from memory is asked for before the first sum, so that it is waited for once.
    i = load_columns(source, columns, mask)
    f = load_columns(source + width, columns, mask)
    o = load_columns(source + 2 * width, columns, mask)
    h = load_columns(hidden + row * width, columns, mask)
    below = load_columns(cell + row * width, columns, mask)
    if keep is not None:
        h = drop(h, keep + row * width, columns, mask, scale)
    if skipped is not None:
        h += load_columns(skipped + row * width, columns, mask)

    i, f, o, _, _, _ = _normalize_gates(i, f, o, mask, width, joint, eps)
    i = tl.sigmoid(i * load_columns(weight, columns, mask) + load_columns(bias, columns, mask))
    f = tl.sigmoid(f * load_columns(weight + width, columns, mask) + load_columns(bias + width, columns, mask))
    o = tl.sigmoid(o * load_columns(weight + 2 * width, columns, mask) + load_columns(bias + 2 * width, columns, mask))
    above = below * f + h * i  # Eq 7
    tl.store(new_cell + row * width + columns, above, mask=mask)
    tl.store(output + row * width + columns, above * o, mask=mask)  # Eq 8


@triton.jit(do_not_specialize=["rows"])
def _gate_update_backward_kernel(
    partial, grad_projected, grad_hidden, grad_below, grad_skipped, grad_output, grad_cell, projected, weight, bias,
    hidden, cell, keep, skipped, rows, grad_projected_stride, projected_stride, scale, eps, width: tl.constexpr,
    block: tl.constexpr, joint: tl.constexpr,
):  # fmt: skip
    columns = tl.arange(0, block)
    mask = columns < width
    i_weight = load_columns(weight, columns, mask)
    f_weight = load_columns(weight + width, columns, mask)
    o_weight = load_columns(weight + 2 * width, columns, mask)
    i_bias = load_columns(bias, columns, mask)
    f_bias = load_columns(bias + width, columns, mask)
    o_bias = load_columns(bias + 2 * width, columns, mask)
    zeros = tl.zeros([block], dtype=tl.float32)
    i_weight_sum, f_weight_sum, o_weight_sum = zeros, zeros, zeros
    i_bias_sum, f_bias_sum, o_bias_sum = zeros, zeros, zeros

    for index in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=2):
        row = tl.cast(index, tl.int64)
        source = projected + row * projected_stride
        i = load_columns(source, columns, mask)
        f = load_columns(source + width, columns, mask)
        o = load_columns(source + 2 * width, columns, mask)
        h = load_columns(hidden + row * width, columns, mask)
        below = load_columns(cell + row * width, columns, mask)
        if keep is not None:
            h = drop(h, keep + row * width, columns, mask, scale)
        if skipped is not None:
            h += load_columns(skipped + row * width, columns, mask)
        grad_result, grad_above = zeros, zeros
        if grad_output is not None:
            grad_result = load_columns(grad_output + row * width, columns, mask)
        if grad_cell is not None:
            grad_above = load_columns(grad_cell + row * width, columns, mask)

        i_normal, f_normal, o_normal, i_inverse, f_inverse, o_inverse = _normalize_gates(
            i, f, o, mask, width, joint, eps
        )
        i = tl.sigmoid(i_normal * i_weight + i_bias)
        f = tl.sigmoid(f_normal * f_weight + f_bias)
        o = tl.sigmoid(o_normal * o_weight + o_bias)
        above = below * f + h * i
        grad_above += grad_result * o
        grad_h = grad_above * i
        if skipped is not None:
            tl.store(grad_skipped + row * width + columns, grad_h, mask=mask)
        if keep is not None:
            grad_h = drop(grad_h, keep + row * width, columns, mask, scale)
        tl.store(grad_hidden + row * width + columns, grad_h, mask=mask)
        tl.store(grad_below + row * width + columns, grad_above * f, mask=mask)

        # Through the sigmoids. Masked columns are zero because all that is loaded there is.
        i_grad = grad_above * h * i * (1.0 - i)
        f_grad = grad_above * below * f * (1.0 - f)
        o_grad = grad_result * above * o * (1.0 - o)
        i_weight_sum += i_grad * i_normal
        f_weight_sum += f_grad * f_normal
        o_weight_sum += o_grad * o_normal
        i_bias_sum += i_grad
        f_bias_sum += f_grad
        o_bias_sum += o_grad

        i_grad *= i_weight
        f_grad *= f_weight
        o_grad *= o_weight
        i_mean, f_mean, o_mean = _means(i_grad, f_grad, o_grad, width, joint)
        i_slope, f_slope, o_slope = _means(i_grad * i_normal, f_grad * f_normal, o_grad * o_normal, width, joint)
        target = grad_projected + row * grad_projected_stride + columns
        tl.store(target, i_inverse * (i_grad - i_mean - i_normal * i_slope), mask=mask)
        tl.store(target + width, f_inverse * (f_grad - f_mean - f_normal * f_slope), mask=mask)
        tl.store(target + 2 * width, o_inverse * (o_grad - o_mean - o_normal * o_slope), mask=mask)

    target = partial + tl.program_id(0).to(tl.int64) * (6 * width) + columns
    tl.store(target, i_weight_sum, mask=mask)
    tl.store(target + width, f_weight_sum, mask=mask)
    tl.store(target + 2 * width, o_weight_sum, mask=mask)
    tl.store(target + 3 * width, i_bias_sum, mask=mask)
    tl.store(target + 4 * width, f_bias_sum, mask=mask)
    tl.store(target + 5 * width, o_bias_sum, mask=mask)


def gate_update(
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
    joint: bool = False,
) -> tuple[Tensor, Tensor]:
    """Compute the gates (Eqs 2-4) from their projections, then cell and output (Eqs 7, 8).

    Args:
        projected: ... x 3d; gates in the order input, forget, output.
        weight, bias: 3 x d.
        hidden: ... x d, the hidden net's output before dropout.
        cell: ... x d, the cell below.
        skipped: ... x d, added to ``hidden`` after dropout, or None.
        keep: None, or what dropout keeps of ``hidden``, boolean, ... x d; multiplied by ``scale``.
        joint: normalize the gates over all 3d values.

    Returns:
        (output, new cell), ... x d each, in the type of ``cell``, which autocast leaves in float32.
    """
    rows = (None if one is None else as_rows(one).contiguous() for one in (hidden, cell, skipped, keep))
    output, above = _GateUpdate.apply(as_rows(projected), weight, bias, *rows, (scale, eps), joint)
    return output.view(cell.shape), above.view(cell.shape)


class _GateUpdate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> tuple[Tensor, Tensor]:
        *tensors, numbers, joint = given
        projected, weight, bias, hidden, cell, skipped, keep = tensors
        rows, width = hidden.shape
        block = triton.next_power_of_2(width)
        ctx.numbers, ctx.constants = numbers, {"columns": 3 * block, "width": width, "block": block, "joint": joint}
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        output, above = cell.new_empty(2, rows, width)
        start_programs(
            _gate_update_kernel, rows, output, above, projected, weight, bias, hidden, cell, as_bytes(keep), skipped,
            projected.stride(0), *numbers, **ctx.constants,
        )  # fmt: skip
        return output, above

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor | None, grad_cell: Tensor | None) -> Any:
        projected, weight, bias, hidden, cell, skipped, keep = ctx.saved_tensors
        rows = hidden.size(0)
        programs = min(rows, program_limit(projected.device, ctx.constants["columns"]))
        partial = projected.new_empty(programs, 2, *weight.shape, dtype=torch.float32)
        results = [torch.empty_like(one, memory_format=torch.contiguous_format) for one in (projected, hidden, cell)]
        grad_skipped = None if skipped is None else torch.empty_like(skipped)
        grads = (grad if grad is None else grad.contiguous() for grad in (grad_output, grad_cell))
        start_programs(
            _gate_update_backward_kernel, programs, partial, *results, grad_skipped, *grads, projected, weight, bias,
            hidden, cell, as_bytes(keep), skipped, rows, results[0].stride(0), projected.stride(0), *ctx.numbers,
            **ctx.constants,
        )  # fmt: skip
        grad_weight, grad_bias = partial.sum(dim=0).to(weight.dtype)
        return results[0], grad_weight, grad_bias, *results[1:], grad_skipped, None, None, None
