"""The search over graphs against fairseq's own with the same models: the same hypotheses, for every variant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator
from tiny_models import MUTE_VARIANTS, SDT_VARIANTS, VARIANTS, build_tiny
from torch import Tensor

from fairseq_depthwise.modules.decoding.graph_search import GraphSearch, SearchLimits
from fairseq_depthwise.modules.decoding.search_graphs import EncoderGraph, StepGraph

#: Further variants, of what surrounds the layers.
OTHERS: dict[str, dict[str, Any]] = {
    "learned positions": {"encoder_learned_pos": True, "decoder_learned_pos": True},
    "no positions": {"no_token_positional_embeddings": True, "no_scale_embedding": True, "max_relative_positions": 2},
    "product quantization noise": {"quant_noise_pq": 0.1, "quant_noise_pq_block_size": 4},
    "adaptive softmax": {"adaptive_softmax_cutoff": "5,8"},
}
ALL = {**VARIANTS, **SDT_VARIANTS, **MUTE_VARIANTS, **OTHERS}


class EagerGraphs:
    def __init__(self, models: Sequence[Any], *, in_place: bool) -> None:
        self.encode = EncoderGraph(models).eval()
        self.step = StepGraph(models, in_place=in_place).eval()


def sources(model: Any, *lengths: int) -> Tensor:
    """Sentences of random words, padded on the left."""
    dictionary = model.encoder.dictionary
    tokens = torch.full((len(lengths), max(lengths) + 1), dictionary.pad())
    for row, length in enumerate(lengths):
        words = torch.randint(
            dictionary.nspecial, len(dictionary), (length,), generator=torch.Generator().manual_seed(row)
        )
        tokens[row, -length - 1 :] = torch.cat([words, torch.tensor([dictionary.eos()])])
    return tokens


def assert_same(models: list[Any], tokens: Tensor, *, in_place: bool, beam: int, longest: int, **limits: Any) -> None:
    dictionary = models[0].decoder.dictionary
    generator = SequenceGenerator(
        models, dictionary, beam_size=beam, max_len_b=longest, len_penalty=0.6, min_len=limits.get("min_length", 1)
    )
    batch: dict[str, Any] = {"net_input": {"src_tokens": tokens, "src_lengths": tokens.ne(dictionary.pad()).sum(1)}}
    prefix = limits.get("prefix", ())
    forced = torch.tensor([prefix] * len(tokens)) if prefix else None
    expected = generator.generate(models, batch, prefix_tokens=forced)
    search = GraphSearch(EagerGraphs(models, in_place=in_place), eos=dictionary.eos(), vocabulary=len(dictionary))
    found = search(tokens, SearchLimits(beam, 0.6, longest, start=dictionary.eos(), **limits))
    for theirs, ours in zip(expected, found, strict=True):
        assert [one["tokens"].tolist() for one in theirs] == [one.tokens for one in ours]
        for one, other in zip(theirs, ours, strict=True):
            assert other.score == pytest.approx(float(one["score"]), abs=1e-4)
            assert other.token_scores == pytest.approx(one["positional_scores"].tolist(), abs=1e-4)


@pytest.mark.parametrize("variant", ALL)
def test_hypotheses_are_those_of_fairseq(variant: str) -> None:
    torch.manual_seed(3)
    model = build_tiny(**ALL[variant]).eval()
    assert_same([model], sources(model, 5, 1, 3, 6), in_place=True, beam=3, longest=20)
    assert_same([model], sources(model, 4), in_place=False, beam=2, longest=5)
