"""Every preset of the multi-unit model: registered, buildable, the paper's row; parameters by a formula."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, FairseqEncoderDecoderModel
from tiny_models import dictionary_of, task_of
from torch import nn

from fairseq_depthwise.models.mute.model import MuteTransformer, MuteTransformerConfig
from fairseq_depthwise.models.mute.presets import PRESETS

MUTE = "mute_transformer"

BASE = {
    **{f"{side}_embed_dim": 512 for side in ("encoder", "decoder")},
    **{f"{side}_ffn_embed_dim": 2048 for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": 8 for side in ("encoder", "decoder")},
    **{"encoder_layers": 6, "decoder_layers": 6, "max_relative_positions": 16, "relative_position_terms": "key-value"},
    **{"dropout": 0.2, "attention_dropout": 0.0, "activation_dropout": 0.2, "activation_fn": "relu"},
    **{"encoder_units": 4, "unit_inputs": "identity", "unit_mask_rate": 0.0, "unit_noise_rate": 0.85},
    **{"unit_sharing": "none", "unit_sequential": False, "permutation_penalty": None},
    **{"permutation_at_inference": "soft"},
}
BIASED = BASE | {"unit_inputs": "identity,swap,mask,disorder"}
SEQUENTIAL = BIASED | {"unit_sequential": True}
BIG = BASE | {
    **{f"{side}_embed_dim": 1024 for side in ("encoder", "decoder")},
    **{f"{side}_ffn_embed_dim": 4096 for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": 16 for side in ("encoder", "decoder")},
    "encoder_units": 1,
}

#: Each preset, by the tables of the paper.
EXPECTED: dict[str, dict[str, Any]] = {
    "biased": BIASED,
    "sequential": SEQUENTIAL,
    "iwslt_de_en": BASE
    | {f"{side}_ffn_embed_dim": 1024 for side in ("encoder", "decoder")}
    | {f"{side}_attention_heads": 4 for side in ("encoder", "decoder")},
    "wmt_en_de": BASE,
    "wmt_zh_en": BASE | {"dropout": 0.1, "activation_dropout": 0.1},
    "nist_zh_en": BASE | {"dropout": 0.4, "activation_dropout": 0.4},
    "wmt_en_de_relative": BASE | {"encoder_units": 1},
    "wmt_en_de_big": BIG,
    "wmt_en_fr_big": BIG | {"dropout": 0.1, "activation_dropout": 0.1},
    "sequential_no_identity": SEQUENTIAL | {"encoder_units": 3, "unit_inputs": "swap,mask,disorder"},
    "sequential_no_swap": SEQUENTIAL | {"encoder_units": 3, "unit_inputs": "identity,mask,disorder"},
    "sequential_no_mask": SEQUENTIAL | {"encoder_units": 3, "unit_inputs": "identity,swap,disorder"},
    "sequential_no_disorder": SEQUENTIAL | {"encoder_units": 3, "unit_inputs": "identity,swap,mask"},
    "sequential_no_bias": BASE | {"unit_sequential": True},
    "shared_attention": BASE | {"unit_sharing": "attention"},
    "shared_ffn": BASE | {"unit_sharing": "ffn"},
    **{f"{units}u": BASE | {"encoder_units": units} for units in (1, 2, 3, 5, 6)},
}

every_preset = pytest.mark.parametrize("preset", PRESETS)


def test_these_are_all() -> None:
    assert set(PRESETS) == set(EXPECTED)
    registered = {name for name, model in ARCH_MODEL_REGISTRY.items() if model is MuteTransformer}
    assert registered == {MUTE} | {f"{MUTE}_{preset}" for preset in EXPECTED}


@every_preset
def test_it_is_the_papers_row(preset: str) -> None:
    args = SimpleNamespace()
    ARCH_CONFIG_REGISTRY[f"{MUTE}_{preset}"](args)
    config = MuteTransformerConfig.complete(args)
    assert {name: getattr(config, name) for name in EXPECTED[preset]} == EXPECTED[preset]


@every_preset
def test_it_sets_options_that_exist_and_only_what_is_not_given(preset: str) -> None:
    assert set(PRESETS[preset]) <= set(MuteTransformerConfig.__dataclass_fields__)
    given = {"dropout": 0.25, "encoder_units": 2, "unit_inputs": "swap", "encoder_ffn_embed_dim": 99}
    args = SimpleNamespace(**given)
    ARCH_CONFIG_REGISTRY[f"{MUTE}_{preset}"](args)
    config = MuteTransformerConfig.complete(args)
    assert {name: getattr(config, name) for name in given} == given


# --- parameters ------------------------------------------------------------------------------------------------------


@cache
def dictionary() -> SimpleNamespace:
    words = dictionary_of(100)
    return SimpleNamespace(source_dictionary=words, target_dictionary=words)


@cache
def build(preset: str, **options: Any) -> FairseqEncoderDecoderModel:
    """Without memory, all embeddings tied."""
    args = SimpleNamespace(share_all_embeddings=True, **options)
    ARCH_CONFIG_REGISTRY[f"{MUTE}_{preset}"](args)
    with torch.device("meta"):
        return ARCH_MODEL_REGISTRY[f"{MUTE}_{preset}"].build_model(args, dictionary())


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


#: Of a unit of base width: the maps of the attention, its table, the feed-forward net and the norm before that.
ATTENTION, TABLE, NET, NORM = 1_050_624, 33 * 64, 2_099_712, 1_024


def test_parameters_of_a_layer() -> None:
    d, wide = 512, 2048
    assert 4 * (d * d + d) == ATTENTION
    assert 2 * d * wide + wide + d == NET
    unit = ATTENTION + TABLE + NET + NORM
    assert unit == 3_153_472
    for units in (1, 2, 3, 5, 6):
        # The layer's own norm, and a weight for each unit.
        assert {count(layer) for layer in build(f"{units}u").encoder.layers} == {units * unit + 1_024 + units}
    # The decoder's tables are like the encoder's.
    layers = build("wmt_en_de").decoder.layers
    assert {count(layer) for layer in layers} == {2 * ATTENTION + TABLE + NET + 3 * NORM}


@pytest.mark.parametrize(
    ("preset", "than", "more"),
    [
        ("wmt_en_de", "wmt_en_de_relative", 18 * 3_153_472 + 18),
        ("wmt_en_de", "shared_attention", 18 * (ATTENTION + TABLE)),
        ("wmt_en_de", "shared_ffn", 18 * (NET + NORM)),
        ("biased", "wmt_en_de", 3_072),
        ("sequential", "biased", 96),
        ("sequential_no_bias", "wmt_en_de", 96),
        ("sequential_no_identity", "sequential_no_mask", 3_072),
        ("sequential", "sequential_no_swap", 6 * (3_153_472 + 1 + 16 - 9)),
        ("wmt_en_de", "wmt_zh_en", 0),
    ],
)
def test_what_options_add(preset: str, than: str, more: int) -> None:
    assert count(build(preset)) - count(build(than)) == more


def test_without_relative_positions_there_is_no_table() -> None:
    """One for each unit of the encoder, one for each layer of the decoder; the value terms have none of their own."""
    assert count(build("wmt_en_de")) - count(build("wmt_en_de", max_relative_positions=0)) == (24 + 6) * TABLE
    assert count(build("wmt_en_de")) == count(build("wmt_en_de", relative_position_terms="key"))
    assert sum(parameter.numel() == 4 for parameter in build("wmt_en_de").encoder.parameters()) == 6


def test_it_starts_as_the_authors_program() -> None:
    """Glorot and Bengio's for every map of every unit; no bias; norms do nothing; units count alike."""
    torch.manual_seed(1)
    sizes = {"encoder_embed_dim": 64, "decoder_embed_dim": 64, "encoder_attention_heads": 4}
    model = MuteTransformer.build_model(
        SimpleNamespace(**sizes, encoder_layers=2, unit_inputs="mask"), task_of(200, 200)
    )
    for name, parameter in model.encoder.layers.named_parameters():
        if name.endswith("mask_vector"):
            assert 0 < parameter.abs().max() < 5 * 64**-0.5
        elif name.endswith("unit_weights"):
            assert parameter.tolist() == [0.25] * 4
        elif parameter.dim() == 3:
            end = (6 / (parameter.size(1) + parameter.size(2))) ** 0.5
            for one in parameter:
                assert 0.95 * end < one.abs().max() <= end, name
        else:
            assert parameter.unique().tolist() == [1.0 if name.endswith("weight") else 0.0], name
