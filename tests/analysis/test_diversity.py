"""Equation 21 over tokens and pairs against loops, and what is read from a model against a second reading of it."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from unit_checkpoints import SENTENCES, unit_model

from fairseq_depthwise.analysis.analysis import StackBatch
from fairseq_depthwise.analysis.diversity import compute_attention_maps, compute_mean_cosines, measure_diversity

UNITS, WIDTH = 3, 4


def diversity_by_loops(outputs: Tensor, include_self: bool) -> float:
    """``outputs``: U x N x C."""
    of_tokens = []
    for token in range(outputs.size(1)):
        cosines = []
        for i, j in itertools.product(range(len(outputs)), repeat=2):
            if i == j and not include_self:
                continue
            one, other = outputs[i, token].tolist(), outputs[j, token].tolist()
            product = sum(a * b for a, b in zip(one, other, strict=True))
            cosines.append(product / math.hypot(*one) / math.hypot(*other))
        of_tokens.append(sum(cosines) / len(cosines))
    return math.exp(-sum(of_tokens) / len(of_tokens))


def diversity(outputs: Tensor, *, include_self: bool = False) -> float:
    return math.exp(-compute_mean_cosines(outputs, include_self=include_self).mean())


@pytest.mark.parametrize("include_self", [False, True])
def test_equals_loops_over_tokens_and_pairs(include_self: bool) -> None:
    torch.manual_seed(1)
    outputs = torch.randn(UNITS, 7, WIDTH) + 0.5
    assert diversity(outputs, include_self=include_self) == pytest.approx(
        diversity_by_loops(outputs, include_self), rel=1e-6
    )


def test_values_that_are_known() -> None:
    one, other = torch.eye(2)[:, None]
    assert diversity(torch.stack([one, 3 * one])) == pytest.approx(math.exp(-1))
    assert diversity(torch.stack([one, other])) == pytest.approx(1)
    assert diversity(torch.stack([one, -one])) == pytest.approx(math.e)
    assert diversity(torch.stack([one, 0 * one])) == pytest.approx(1)


def batches_of(model: Any, size: int) -> list[StackBatch]:
    """Sentences in their order, padded on the left."""
    dictionary = model.encoder.dictionary
    encoded = [dictionary.encode_line(one, add_if_not_exist=False).long() for one in SENTENCES]
    batches = []
    for start in range(0, len(encoded), size):
        some = encoded[start : start + size]
        longest = max(map(len, some))
        tokens = torch.full((len(some), longest), dictionary.pad())
        for row, sentence in zip(tokens, some, strict=True):
            row[longest - len(sentence) :][: len(sentence)] = sentence
        batches.append(StackBatch(model, {"src_tokens": tokens}, {"encoder": tokens.eq(dictionary.pad())}))
    return batches


@torch.no_grad()
def second_reading(model: Any, include_self: bool) -> list[tuple[float | None, ...]]:
    """Without hooks, padding or batches; ``include_self``: as the authors' program, where nets return s_i + FFN_i."""
    vectors: list[tuple[list[Tensor], list[Tensor], list[Tensor]]] = [([], [], []) for _ in model.encoder.layers]
    longest = max(len(sentence.split()) for sentence in SENTENCES) + 1
    for batch in batches_of(model, 1):
        stream = model.encoder.embedding(batch.net_input["src_tokens"])
        for layer, (positions, attended, fed) in zip(model.encoder.layers, vectors, strict=True):
            outputs, weights = layer.self_attention(
                layer.inputs(layer.self_attention_norm(stream), None), None, need_weights=True
            )
            units = stream + outputs
            nets = layer.feed_forward(units)
            mean = sum(weights[:, head] for head in range(weights.size(1))) / weights.size(1)
            positions.append(torch.nn.functional.pad(mean[:, 0], (0, longest - mean.size(-1))))
            attended.append(outputs[:, :, 0])
            fed.append((units + nets if include_self else nets)[:, :, 0])
            stream = torch.tensordot(layer.coefficients(), units + nets, dims=1)
    result = []
    for columns in vectors:
        whole = (torch.cat(of_sentences, dim=1) for of_sentences in columns)
        result.append(tuple(diversity(one, include_self=include_self) if len(one) > 1 else None for one in whole))
    return result


@pytest.mark.parametrize(
    "options",
    [{}, {"unit_sharing": "attention"}, {"unit_sharing": "ffn"}, {"unit_sequential": True, "encoder_layers": 3},
     {"max_relative_positions": 0}],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("include_self", [False, True])
def test_diversity_is_that_of_the_second_reading(options: dict[str, Any], include_self: bool) -> None:
    model = unit_model(**options)
    measured = measure_diversity(model.encoder.layers, batches_of(model, 3), include_self=include_self)
    for layer, expected in zip(measured, second_reading(model, include_self), strict=True):
        for value, other in zip(layer, expected, strict=True):
            assert value == (None if other is None else pytest.approx(other, rel=1e-5))


def test_attention_maps_are_distributions_of_the_chosen_layer() -> None:
    model = unit_model()
    tokens = batches_of(model, 1)[2].net_input["src_tokens"]
    maps = [compute_attention_maps(model.encoder, tokens, layer) for layer in (0, 1)]
    assert maps[0].shape == (4, tokens.size(1), tokens.size(1))
    torch.testing.assert_close(maps[0].sum(dim=-1), torch.ones(4, tokens.size(1)))
    assert not torch.allclose(maps[0], maps[1])
