"""Similarities of layers: golden numbers, and a second reading with loops over sentences, layers and positions."""

from __future__ import annotations

import math
from argparse import Namespace
from dataclasses import astuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from probe_checkpoints import checkpoint_of
from torch import Tensor

from fairseq_depthwise.analysis.analysis import SIDES, make_report
from fairseq_depthwise.analysis.loaded_model import LoadedModel, load_model
from fairseq_depthwise.analysis.similarity import LayerSimilarity, measure_similarity

#: Families, and fairseq's transformer.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "depth-wise": ("depthwise_lstm_transformer", {}),
    "depth-wise, two cells": ("depthwise_lstm_transformer", {"decoder_merge": "two-cells"}),
    "blocks": ("sdt_transformer", {}),
    **{
        name: ("sdt_transformer", {"encoder_connection": name, "decoder_connection": name, "encoder_block_size": 0})
        for name in ("average", "attention", "hyper", "value-residual")
    },
    "units": ("mute_transformer", {}),
    "stock": ("transformer", {}),
    "stock, post-norm": ("transformer", {"encoder_normalize_before": False, "decoder_normalize_before": False}),
}


# --- the sums --------------------------------------------------------------------------------------------------------


def test_golden_numbers() -> None:
    """Two sentences in two dimensions, of two positions and of one; worked out by hand."""
    nan = math.nan
    padding = torch.tensor([[False, False], [True, False]])
    # T x B x C
    embedding = torch.tensor([[[1.0, 0.0], [nan, nan]], [[0.0, 2.0], [3.0, 0.0]]])
    layer = torch.tensor([[[1.0, 0.0], [nan, nan]], [[3.0, 4.0], [0.0, 1.0]]])
    top = torch.tensor([[[-5.0, 0.0], [nan, nan]], [[6.0, 8.0], [2.0, 2.0]]])
    batch: Any = SimpleNamespace(run=lambda: {"encoder": [embedding, layer, top]}, padding={"encoder": padding})
    half = math.sqrt(0.5)
    # Of the first sentence, the embedding sums up to (1, 2), the layer to (4, 4), and the top to (1, 8).
    expected = [
        LayerSimilarity(0, 1.0, None, (1 / 5**0.5 + 2 / 5**0.5 + 1) / 3),
        LayerSimilarity(1, (1 + 0.8 + 0) / 3, (1 + 0.8 + 0) / 3, (half + 1.4 * half + 1) / 3),
        LayerSimilarity(2, (-1 + 0.8 + half) / 3, (-1 + 1 + half) / 3, (-1 / 65**0.5 + 7 / 65**0.5 + 1) / 3),
    ]
    for found, one in zip(measure_similarity([batch])["encoder"], expected, strict=True):
        assert astuple(found) == pytest.approx(astuple(one), rel=1e-12)


# --- models ----------------------------------------------------------------------------------------------------------


def cosine(x: Tensor, y: Tensor) -> float:
    x, y = x.detach(), y.detach()
    return float(x @ y / math.sqrt(x @ x * (y @ y)))


def states_of(loaded: LoadedModel, side: str, source: Tensor, previous: Tensor) -> list[Tensor]:
    """Of one sentence without padding, L + 1 times T x 1 x C."""
    model: Any = loaded.model
    if loaded.architecture == "transformer" and side == "encoder":
        states = [model.encoder.forward_embedding(source)[0].transpose(0, 1)]
        for layer in model.encoder.layers:
            states.append(layer(states[-1], None))
        return states
    encoded = model.encoder(source, src_lengths=torch.tensor([source.size(1)]), return_all_hiddens=True)
    if side == "encoder":
        states = encoded["encoder_states"]
    else:
        states = model.decoder(previous, encoder_out=encoded)[1]["inner_states"]
    return list(states)


def second_reading(loaded: LoadedModel, side: str) -> list[tuple[float, float | None, float]]:
    found: dict[int, list[tuple[float, float | None, float]]] = {}
    dataset = loaded.dataset("valid")
    for index in range(len(dataset)):
        source, target = dataset[index]["source"], dataset[index]["target"]
        previous = torch.cat([target[-1:], target[:-1]])  # the end of sentence first
        states = [one[:, 0].double() for one in states_of(loaded, side, source[None], previous[None])]
        for number, state in enumerate(states):
            mean = state.sum(0) / len(state)
            for p, vector in enumerate(state):
                below = cosine(vector, states[number - 1][p]) if number else None
                found.setdefault(number, []).append((cosine(vector, states[0][p]), below, cosine(vector, mean)))
    return [
        tuple(None if None in column else sum(column) / len(column) for column in zip(*positions, strict=True))
        for positions in found.values()
    ]


@pytest.mark.parametrize("name", MODELS)
def test_is_the_second_reading_whatever_the_batches(name: str, tmp_path: Path, data: str) -> None:
    kind, options = MODELS[name]
    loaded = load_model(checkpoint_of(tmp_path, kind, **options), data)
    expected = {side: second_reading(loaded, side) for side in SIDES}
    for max_tokens in (1, 15, 1000):
        options = Namespace(subset="valid", max_sentences=1000, max_tokens=max_tokens, side="both")
        report = make_report(loaded, options, measure_similarity)
        assert report.sentences == 6
        for side in SIDES:
            rows = report.rows[side]
            assert [row.layer for row in rows] == list(range(len(getattr(loaded.model, side).layers) + 1))
            for row, read in zip(rows, expected[side], strict=True):
                assert astuple(row)[1:] == pytest.approx(read, abs=1e-5)
            assert report.tokens[side] == sum(len(one["source"]) for one in loaded.dataset("valid"))
