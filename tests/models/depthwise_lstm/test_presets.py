"""Every preset: registered, buildable, of the depth its name says, and nothing but defaults."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from tiny_models import task_of

from fairseq_depthwise.models.depthwise_lstm.model import DepthwiseLSTMTransformer, DepthwiseLSTMTransformerConfig
from fairseq_depthwise.models.depthwise_lstm.presets import PRESETS

PREFIX = "depthwise_lstm_transformer"

#: Encoder and decoder layers of the presets that do not have 6 and 6.
DEPTHS = {
    **{f"wmt_en_de_{layers}l": (layers, layers) for layers in (3, 12, 18, 24)},
    "wmt_en_de_big_12l": (12, 12),
    "wmt_en_de_big_12l_6l": (12, 6),
    "wmt_en_de_big_12l_6l_1layer": (12, 6),
}
# The big deep ones are also registered by shorter names.
DEPTHS |= {name.removeprefix("wmt_en_de_"): depth for name, depth in DEPTHS.items() if "big" in name}

BASE = {"encoder_embed_dim": 512, "decoder_embed_dim": 512, "encoder_attention_heads": 8, "depthwise_hidden_dim": 2048}
BIG = {
    "encoder_embed_dim": 1024,
    "decoder_embed_dim": 1024,
    "decoder_attention_heads": 16,
    "depthwise_hidden_dim": 4096,
}

#: What some presets set, by the tables of the papers.
EXPECTED: dict[str, dict[str, Any]] = {
    "iwslt_de_en": {"encoder_embed_dim": 512, "decoder_attention_heads": 4, "depthwise_hidden_dim": 1024},
    "wmt_en_de": BASE | {"depthwise_gate_scope": "stack", "depthwise_sharing": "gates", "dropout": 0.1},
    "wmt_en_de_big": BIG | {"dropout": 0.3},
    "wmt_en_fr_big": BIG | {"dropout": 0.1},
    "wmt_en_de_6l": BASE | {"depthwise_gate_scope": "model"},
    "wmt_en_de_rnn": BASE | {"depthwise_cell": "rnn"},
    "wmt_en_de_1layer": {"depthwise_hidden_layers": 1},
    "wmt_en_de_hidden1536": {"depthwise_hidden_dim": 1536},
    "wmt_en_de_concat": {"decoder_merge": "concat", "depthwise_gate_scope": "stack"},
    "wmt_en_de_two_cells": {"decoder_merge": "two-cells"},
    "wmt_en_de_share_all": {"depthwise_sharing": "all"},
    "wmt_en_de_share_none": {"depthwise_sharing": "none"},
    "wmt_en_de_gelu": {"depthwise_hidden_activation": "gelu"},
    "wmt_en_de_big_12l": BIG,
    "wmt_en_de_big_12l_6l": BIG | {"max_relative_positions": 16, "relative_position_terms": "key"},
    "wmt_en_de_big_12l_6l_1layer": BIG | {"depthwise_hidden_layers": 1, "max_relative_positions": 16},
}

every_preset = pytest.mark.parametrize("preset", PRESETS)


def completed(preset: str, **given: Any) -> DepthwiseLSTMTransformerConfig:
    """The whole configuration of a preset, as fairseq makes it when nothing else is given."""
    args = SimpleNamespace(**given)
    ARCH_CONFIG_REGISTRY[f"{PREFIX}_{preset}"](args)
    return DepthwiseLSTMTransformerConfig.complete(args)


@every_preset
def test_it_is_registered_and_builds_with_the_depth_of_its_name(preset: str) -> None:
    assert ARCH_MODEL_REGISTRY[f"{PREFIX}_{preset}"] is DepthwiseLSTMTransformer
    args = SimpleNamespace()
    ARCH_CONFIG_REGISTRY[f"{PREFIX}_{preset}"](args)
    with torch.device("meta"):
        model = DepthwiseLSTMTransformer.build_model(args, task_of())
    assert (len(model.encoder.layers), len(model.decoder.layers)) == DEPTHS.get(preset, (6, 6))
    assert all(parameter.is_meta for parameter in model.parameters())


@every_preset
def test_it_sets_options_that_exist_and_only_what_is_not_given(preset: str) -> None:
    names = set(DepthwiseLSTMTransformerConfig.__dataclass_fields__)
    assert set(PRESETS[preset]) <= names
    given = {"dropout": 0.25, "encoder_layers": 9, "encoder_embed_dim": 32, "encoder_attention_heads": 2}
    config = completed(preset, **given, decoder_embed_dim=32)
    assert {name: getattr(config, name) for name in given} == given


@pytest.mark.parametrize("preset", EXPECTED)
def test_it_is_the_papers_row(preset: str) -> None:
    config = completed(preset)
    assert {name: getattr(config, name) for name in EXPECTED[preset]} == EXPECTED[preset]


@pytest.mark.parametrize("preset", ["big_12l", "big_12l_6l", "big_12l_6l_1layer"])
def test_the_short_name_is_the_same(preset: str) -> None:
    assert completed(preset) == completed(f"wmt_en_de_{preset}")
