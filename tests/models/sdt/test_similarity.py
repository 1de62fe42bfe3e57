"""Inter-Sim against a second reading with loops over layers, sentences and positions."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fairseq_depthwise.models.sdt.similarity import inter_similarity, inter_similarity_of, inter_similarity_penalty

LAYERS, LONGEST, WIDTH = 3, 5, 4

#: B x T: padding left, none, right, and a sentence of one token.
PADDING = torch.tensor([[1, 1, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 1, 1], [1, 1, 1, 1, 0]]).bool()


def layer_outputs(dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """L times T x B x C, with something in the padding too."""
    generator = torch.Generator().manual_seed(3)
    states = torch.randn(LAYERS, LONGEST, len(PADDING), WIDTH, generator=generator, dtype=torch.float64) + 0.3
    return list(states.to(dtype))


def read_similarities(state: Tensor, padding: Tensor) -> list[float]:
    """Return the similarity of each real position of a batch, sentence by sentence."""
    found = []
    for b in range(state.size(1)):
        sentence = [state[t, b] for t in range(state.size(0)) if not padding[b, t]]
        mean = sum(sentence) / len(sentence)
        found += [float(x @ mean / math.sqrt(x @ x * (mean @ mean))) for x in sentence]
    return found


def test_is_the_second_reading() -> None:
    states = layer_outputs()
    layers = [sum(one) / len(one) for one in (read_similarities(state, PADDING) for state in states)]
    for state, read in zip(states, layers, strict=True):
        assert inter_similarity_of(state, PADDING).item() == pytest.approx(read, rel=1e-12)
    assert inter_similarity(states, PADDING).item() == pytest.approx(sum(layers) / LAYERS, rel=1e-12)
    assert inter_similarity_penalty(states, PADDING).item() == pytest.approx(1 - sum(layers) / LAYERS, rel=1e-12)


def test_zero_vectors_and_empty_sentences_are_finite() -> None:
    state = layer_outputs()[0]
    state[:, 1] = 0  # a whole sentence
    state[2, 2] = 0  # one position
    padding = PADDING.clone()
    padding[0] = True
    state.requires_grad_()
    value = inter_similarity_of(state, padding)
    value.backward()
    assert value.isfinite()
    assert state.grad.isfinite().all()
    assert (state.grad[padding.T] == 0).all()
