"""Searches over graphs compared with fairseq's own search with the same models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator
from tiny_models import MUTE_VARIANTS, SDT_VARIANTS, VARIANTS
from torch import Tensor

from fairseq_depthwise.backends.graph_search import Graphs, GraphSearch, SearchLimits
from fairseq_depthwise.backends.graphs import EncoderGraph, StepGraph

#: Every variant of a model, those of what surrounds the layers included.
ALL_VARIANTS: dict[str, dict[str, Any]] = {
    **VARIANTS,
    **SDT_VARIANTS,
    **MUTE_VARIANTS,
    "learned positions": {"encoder_learned_pos": True, "decoder_learned_pos": True},
    "no positions": {"no_token_positional_embeddings": True, "no_scale_embedding": True, "max_relative_positions": 2},
}


def eager_graphs(models: Sequence[Any], *, in_place: bool) -> Graphs:
    """The graphs as PyTorch runs them without a compiler."""
    return Graphs(EncoderGraph(models).eval(), StepGraph(models, in_place=in_place).eval())


def sentences(model: Any, *lengths: int) -> Tensor:
    """Random words, always the same, padded on the left, B x S."""
    dictionary = model.encoder.dictionary
    tokens = torch.full((len(lengths), max(lengths) + 1), dictionary.pad())
    for row, length in enumerate(lengths):
        seed = torch.Generator().manual_seed(row)
        words = torch.randint(dictionary.nspecial, len(dictionary), (length,), generator=seed)
        tokens[row, -length - 1 :] = torch.cat([words, torch.tensor([dictionary.eos()])])
    return tokens


def assert_same_hypotheses(
    models: list[Any], graphs: Graphs, tokens: Tensor, *, beam: int, longest: int, **limits: Any
) -> None:
    """Search with the models and with the graphs: the same tokens, and the same scores but for rounding."""
    dictionary, prefix = models[0].decoder.dictionary, limits.get("prefix", ())
    generator = SequenceGenerator(
        models, dictionary, beam_size=beam, max_len_b=longest, len_penalty=0.6, min_len=limits.get("min_length", 1)
    )
    batch: dict[str, Any] = {"net_input": {"src_tokens": tokens, "src_lengths": tokens.ne(dictionary.pad()).sum(1)}}
    expected = generator.generate(models, batch, prefix_tokens=torch.tensor([prefix] * len(tokens)) if prefix else None)
    search = GraphSearch(graphs, eos=dictionary.eos(), vocabulary=len(dictionary))
    ours = search(tokens, SearchLimits(beam, 0.6, longest, start=dictionary.eos(), **limits))
    for theirs, found in zip(expected, ours, strict=True):
        assert [hypothesis["tokens"].tolist() for hypothesis in theirs] == [
            hypothesis["tokens"].tolist() for hypothesis in found
        ]
        for their, our in zip(theirs, found, strict=True):
            assert our["score"] == pytest.approx(float(their["score"]), abs=1e-4)
            assert our["positional_scores"].tolist() == pytest.approx(their["positional_scores"].tolist(), abs=1e-4)
