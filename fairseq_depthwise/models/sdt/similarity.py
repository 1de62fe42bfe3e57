"""How similar the representations within a sentence are, and the penalty that makes them more similar.

Source: "Shallow-to-Deep Training for Neural Machine Translation", Section 3 (Inter-Sim) and Section 6.3 (Reg-6L).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

#: Cosines divide by at least this length, so that a zero vector has similarity 0 and a finite gradient.
_EPS = 1e-6


def similarities_to_sentence(state: Tensor, padding: Tensor | None = None) -> Tensor:
    """Return how similar each position of T x B x C is to its whole sentence, ``cos(x_i, mean_j x_j)``.

    T x B, at least in float32; 0 at ``padding`` (B x T), 1 for sentences of one token.
    """
    # In 16 bits a sum over many positions loses their differences.
    state = state.to(torch.promote_types(state.dtype, torch.float32))
    # Padding must not count in the sentence's mean.
    if padding is not None:
        state = state.masked_fill(padding.transpose(0, 1)[:, :, None], 0)
    # The sum may replace the mean, as a cosine does not depend on lengths. At padding vector and cosine are 0.
    return F.cosine_similarity(state, state.sum(dim=0), dim=-1, eps=_EPS)


def inter_similarity_of(state: Tensor, padding: Tensor | None = None) -> Tensor:
    """Compute one layer's Inter-Sim: the mean of :func:`similarities_to_sentence` over all non-padding positions."""
    similarity = similarities_to_sentence(state, padding)  # T x B
    if padding is None:
        return similarity.mean()
    # Padding has similarity 0 and is not counted.
    return similarity.sum() / padding.logical_not().sum()


def inter_similarity(states: Sequence[Tensor], padding: Tensor | None = None) -> Tensor:
    """Average :func:`inter_similarity_of` over layers."""
    return torch.stack([inter_similarity_of(state, padding) for state in states]).mean()


def inter_similarity_penalty(states: Sequence[Tensor], padding: Tensor | None = None) -> Tensor:
    """Compute what Reg-6L adds to the loss: ``1 - Inter-Sim`` of the layers, without the embedding; from 0 to 2.

    The paper names the measure, but gives no formula.
    """
    return 1 - inter_similarity(states, padding)
