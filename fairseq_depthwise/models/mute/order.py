"""The learned order of a layer's units: a matrix that becomes a permutation, and the units' coefficients under it.

Source: "Multi-Unit Transformers for Neural Machine Translation", Section 3.3, after AutoShuffleNet (Lyu et al. 2019).

The units run side by side, so the order acts only where their outputs are summed. With M the matrix and alpha the
weights, Equations 14 to 16 are one sum over the units::

    sum_j alpha_j / j sum_{k<=j} sum_i M_ik F_i  =  sum_i c_i F_i,   c = M a,   a_k = sum_{j>=k} alpha_j / j
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_compat import UserError

#: Added to every entry, in proportion to their mean: a matrix with too many zeros cannot be made doubly stochastic.
EPSILON = 1e-3

#: How often columns and rows are normalized. The paper normalizes once after every update, a matrix that was normalized
#: before. The parameter here is not, so it takes more rounds: where half of the entries were clipped, rows then sum to
#: 1, and columns to 1 within a hundredth.
ROUNDS = 50

#: How often the means of columns and rows are subtracted from the gradient.
TANGENT_ROUNDS = 4

#: Greatest initial distance of the parameter's entries from 1/I, relative to 1/I.
SPREAD = 0.05


def project(raw: Tensor) -> Tensor:
    """Return the non-negative, doubly stochastic matrices of Equations 17 and 18, ... x I x I, at least in float32.

    The gradient is passed straight through to ``raw``, except for the part that the projection would undo: the means of
    rows and columns, weighted by the matrix. With that part, the penalty's gradient, which is positive everywhere,
    would take all entries of ``raw`` to 0 together, where nothing distinguishes them any more.
    :meth:`UnitOrder.finish_gradient` later removes what would move an entry at 0 below it.
    """
    projected: Tensor = _StraightThrough.apply(raw)
    return projected


class _StraightThrough(torch.autograd.Function):
    """The projection, with a linear backward pass: gradients of the parts of a batch add up to the batch's."""

    @staticmethod
    def forward(ctx: Any, raw: Tensor) -> Tensor:
        # Equation 17: no negative entries.
        matrix = raw.to(torch.promote_types(raw.dtype, torch.float32)).clamp(min=0)
        matrix = matrix + EPSILON * matrix.mean(dim=(-2, -1), keepdim=True).clamp(min=EPSILON)
        # Equation 18: columns and rows that sum to 1.
        for _ in range(ROUNDS):
            matrix = matrix / matrix.sum(dim=-2, keepdim=True)
            matrix = matrix / matrix.sum(dim=-1, keepdim=True)
        ctx.save_for_backward(matrix)
        ctx.dtype = raw.dtype
        return matrix

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (matrix,) = ctx.saved_tensors
        tangent = gradient
        for _ in range(TANGENT_ROUNDS):
            for dim in (-2, -1):
                weighted_mean = (tangent * matrix).sum(dim, keepdim=True) / matrix.sum(dim, keepdim=True)
                tangent = tangent - weighted_mean
        return tangent.to(ctx.dtype)


def penalty(matrix: Tensor) -> Tensor:
    """Compute Equation 19 for each of ... x I x I: 0 for a permutation, 2 (I - sqrt I) for the uniform matrix."""
    columns = (matrix.abs().sum(dim=-2) - matrix.norm(dim=-2)).sum(-1)
    rows = (matrix.abs().sum(dim=-1) - matrix.norm(dim=-1)).sum(-1)
    return rows + columns


def nearest_permutation(matrix: Tensor) -> Tensor:
    """Return the permutation matrix at the least Frobenius distance; raise UserError where scipy is not installed."""
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError:
        raise UserError("the learned order needs scipy; pip install 'fairseq-depthwise[analysis]'") from None

    rows, columns = linear_sum_assignment(matrix.detach().cpu().numpy(), maximize=True)
    result = torch.zeros_like(matrix)
    result[torch.as_tensor(rows), torch.as_tensor(columns)] = 1
    return result


class UnitOrder(nn.Module):
    """The matrix M of a layer; ``at_inference`` soft uses M in evaluation too, hard the nearest permutation."""

    # The coefficients sum to nearly 1, not exactly. Only the layer norm on top of the stack does not notice that.
    identity_only_on_top_option = "--unit-sequential"

    def __init__(self, *, units: int, at_inference: str = "soft") -> None:
        super().__init__()
        self.at_inference = at_inference
        # The uniform matrix is a saddle point: nothing distinguishes the units there.
        self.raw = nn.Parameter((1 + SPREAD * (2 * torch.rand(units, units) - 1)) / units)

    def matrix(self) -> Tensor:
        """Return M, I x I: M_ik is how much of unit i is at place k."""
        return project(self.raw)

    @torch.no_grad()
    def finish_gradient(self) -> None:
        """Remove from the gradient what would move entries at or below 0 further down.

        Such entries of the matrix are 0 already; further down, they would only have a longer way back. Whether an entry
        would move depends on the sum over all batches and processes of an update, so this must happen after the last
        backward pass and before clipping. In fairseq ``call_finish_gradient`` does it
        (``fairseq_compat/patches/training.py``); other training loops have to call it.
        """
        gradient = self.raw.grad
        if gradient is not None:
            gradient.masked_fill_((self.raw <= 0) & (gradient > 0), 0.0)

    def distance(self) -> float:
        """Return the Frobenius distance of M from the nearest permutation."""
        with torch.no_grad():
            matrix = self.matrix()
            return float((matrix - nearest_permutation(matrix)).norm())

    def order(self) -> list[int]:
        """Return the unit at each place of the nearest permutation, counted from 0."""
        with torch.no_grad():
            places: list[int] = nearest_permutation(self.matrix()).argmax(dim=0).tolist()
        return places


def coefficients(orders: Sequence[UnitOrder], weights: Tensor) -> Tensor:
    """Return the coefficients c of the units' outputs in L layers (L x I), from the weights alpha of places (L x I).

    They are as precise as M, since the differences between them are small.
    """
    matrices = project(torch.stack([order.raw for order in orders]))
    if orders[0].at_inference == "hard" and not orders[0].training:
        matrices = torch.stack([nearest_permutation(matrix) for matrix in matrices])
    # c = M a in each layer: L x I x I times L x I.
    return (matrices * accumulate_weights(weights.to(matrices.dtype)).unsqueeze(-2)).sum(-1)


def accumulate_weights(weights: Tensor) -> Tensor:
    """Compute ``a_k = sum_{j>=k} alpha_j / j`` (... x I): the weight of the output at place k in Equation 15."""
    places = torch.arange(1, weights.size(-1) + 1, device=weights.device, dtype=weights.dtype)
    shares = weights / places
    # A sum from the last place down.
    return shares.flip(-1).cumsum(-1).flip(-1)
