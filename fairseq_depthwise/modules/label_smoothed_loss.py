"""The label-smoothed loss from scores, in chunks: log-probabilities of all positions are never in memory.

fairseq's loss takes log-probabilities. These are in float32, whatever the model's type, for every target position and
word, and the backward pass allocates as much twice again. Here scores stay in the model's type, and float32 values
exist for a few positions at a time, which fit the cache of a CPU.

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

#: Scores in a chunk. On a CPU a chunk stays in its cache; on a GPU a few large ones are enough to limit the memory.
_CPU_CHUNK = 2**18
_GPU_CHUNK = 2**26


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
        log_z = torch.empty(scores.size(0), dtype=wide_type, device=scores.device)  # N
        total = torch.empty_like(log_z)  # sum_v s_v, N
        buffer = _buffer(scores, wide_type)
        for chunk in _split_chunks(scores):
            wide = buffer[: scores[chunk].size(0)].copy_(scores[chunk])
            total[chunk] = wide.sum(dim=-1)
            # The greatest score is subtracted so that exp does not overflow; one that is infinite stays.
            highest = wide.amax(dim=-1)
            highest.masked_fill_(highest.isinf(), 0)
            log_z[chunk] = wide.sub_(highest[:, None]).exp_().sum(dim=-1).log_().add_(highest)

        is_token = target.ne(padding)
        nll = (log_z - scores.gather(-1, target[:, None]).squeeze(-1)) * is_token
        vocabulary_size = scores.size(-1)
        word_smoothing = smoothing / (vocabulary_size - 1)  # e_i
        loss = (1 - smoothing - word_smoothing) * nll + word_smoothing * (vocabulary_size * log_z - total) * is_token
        ctx.save_for_backward(scores, target, log_z, is_token)
        ctx.smoothing = smoothing
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, grad_nll: Tensor) -> tuple[Tensor, None, None, None]:
        scores, target, log_z, is_token = ctx.saved_tensors
        word_smoothing = ctx.smoothing / (scores.size(-1) - 1)  # e_i
        weight = (grad_loss * is_token)[:, None]
        gradient = torch.empty_like(scores)
        # Scores in float32 or float64 need no buffer: their gradient is computed in place.
        buffer = None if scores.dtype == log_z.dtype else _buffer(scores, log_z.dtype)
        for chunk in _split_chunks(scores):
            wide = gradient[chunk] if buffer is None else buffer[: scores[chunk].size(0)]
            wide.copy_(scores[chunk])
            wide.sub_(log_z[chunk][:, None]).exp_().sub_(word_smoothing).mul_(weight[chunk])
            wide.scatter_add_(-1, target[chunk][:, None], -(1 - ctx.smoothing - word_smoothing) * weight[chunk])
            if buffer is not None:
                gradient[chunk] = wide
        return gradient, None, None, None


def _split_chunks(scores: Tensor) -> list[slice]:
    """Return the positions whose scores are computed together."""
    rows = _chunk_length(scores)
    return [slice(start, start + rows) for start in range(0, scores.size(0), rows)]


def _chunk_length(scores: Tensor) -> int:
    """Return the number of positions in a chunk."""
    chunk_size = _CPU_CHUNK if scores.device.type == "cpu" else _GPU_CHUNK
    return max(1, chunk_size // max(1, scores.size(-1)))


def _buffer(scores: Tensor, dtype: torch.dtype) -> Tensor:
    """Allocate memory for one chunk of scores; all chunks use it, so that it stays in a CPU's cache."""
    return torch.empty((min(_chunk_length(scores), scores.size(0)), scores.size(-1)), dtype=dtype, device=scores.device)
