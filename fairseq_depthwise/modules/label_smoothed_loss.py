"""The label-smoothed loss from scores, in pieces: log-probabilities of the whole vocabulary are never in memory.

fairseq's loss takes log-probabilities: float32 whatever the model computes in, for every target position and word, and
as much again, twice, on the way back. Here scores stay in the model's type, and what is computed of them in float32
exists for a few positions at a time, which on a CPU fit its cache.

With V words, scores s, log Z = log sum_v exp s_v, the target t, e the smoothing and e_i = e / (V - 1), fairseq's loss
of a position is ::

    (1 - e - e_i) (log Z - s_t) + e_i (V log Z - sum_v s_v)

and its gradient by s_v, as the factors of log Z add up to 1, is ::

    exp(s_v - log Z) - e_i - (1 - e - e_i) [v = t]
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

#: Scores in a piece: on a CPU they stay in its cache; on a GPU a few large pieces are enough for any memory.
_PIECE = {"cpu": 2**18}
_LARGE_PIECE = 2**26


def label_smoothed_loss(scores: Tensor, target: Tensor, smoothing: float, padding: int) -> tuple[Tensor, Tensor]:
    """Compute the loss of each of N positions, and its negative log-likelihood, which has no gradient.

    ``scores`` are N x V, in any floating-point type; targets (N) that are ``padding`` have a loss of 0. Both results
    are in float32, or float64 for scores in float64.
    """
    loss, nll = _LabelSmoothedLoss.apply(scores, target, smoothing, padding)
    return loss, nll


class _LabelSmoothedLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, target: Tensor, smoothing: float, padding: int) -> tuple[Tensor, Tensor]:
        wide_type = torch.promote_types(scores.dtype, torch.float32)
        log_z = torch.empty(scores.size(0), dtype=wide_type, device=scores.device)
        total = torch.empty_like(log_z)
        buffer = _buffer(scores, log_z.dtype)
        for piece in _pieces(scores):
            wide = buffer[: scores[piece].size(0)].copy_(scores[piece])
            total[piece] = wide.sum(dim=-1)
            highest = wide.amax(dim=-1)
            highest.masked_fill_(highest.isinf(), 0)
            log_z[piece] = wide.sub_(highest[:, None]).exp_().sum(dim=-1).log_().add_(highest)
        real = target.ne(padding)
        nll = (log_z - scores.gather(-1, target[:, None]).squeeze(-1)) * real
        words = scores.size(-1)
        each = smoothing / (words - 1)
        loss = (1 - smoothing - each) * nll + each * (words * log_z - total) * real
        ctx.save_for_backward(scores, target, log_z, real)
        ctx.smoothing = smoothing
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_loss: Tensor, by_nll: Tensor) -> tuple[Tensor, None, None, None]:
        scores, target, log_z, real = ctx.saved_tensors
        each = ctx.smoothing / (scores.size(-1) - 1)
        weight = (by_loss * real)[:, None]
        gradient = torch.empty_like(scores)
        buffer = None if scores.dtype == log_z.dtype else _buffer(scores, log_z.dtype)
        for piece in _pieces(scores):
            # Where no type is changed, the gradient is computed in its place.
            wide = gradient[piece] if buffer is None else buffer[: scores[piece].size(0)]
            wide.copy_(scores[piece])
            wide.sub_(log_z[piece][:, None]).exp_().sub_(each).mul_(weight[piece])
            wide.scatter_add_(-1, target[piece][:, None], -(1 - ctx.smoothing - each) * weight[piece])
            if buffer is not None:
                gradient[piece] = wide
        return gradient, None, None, None


def _buffer(scores: Tensor, dtype: torch.dtype) -> Tensor:
    """Allocate memory for a piece's scores, the same for all pieces, so that it stays in a CPU's cache."""
    return torch.empty((min(_rows(scores), scores.size(0)), scores.size(-1)), dtype=dtype, device=scores.device)


def _rows(scores: Tensor) -> int:
    """Return the number of positions in a piece."""
    return max(1, _PIECE.get(scores.device.type, _LARGE_PIECE) // max(1, scores.size(-1)))


def _pieces(scores: Tensor) -> list[slice]:
    """Return the positions whose scores are computed together."""
    rows = _rows(scores)
    return [slice(start, start + rows) for start in range(0, scores.size(0), rows)]
