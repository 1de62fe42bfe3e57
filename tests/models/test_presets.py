"""Presets of all families: registered, the rows of the papers' tables, nothing but defaults; first values."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_REGISTRY, FairseqEncoderDecoderModel
from tiny_models import FAMILIES, task_of

from fairseq_compat.provenance import options_class
from fairseq_depthwise.models.depthwise_lstm.presets import PRESETS as DEPTHWISE_PRESETS
from fairseq_depthwise.models.mute.presets import PRESETS as MUTE_PRESETS
from fairseq_depthwise.models.sdt.presets import PRESETS as SDT_PRESETS

DEPTHWISE, SDT, MUTE = FAMILIES
PRESETS = {DEPTHWISE: DEPTHWISE_PRESETS, SDT: SDT_PRESETS, MUTE: MUTE_PRESETS}


def sides(**options: int) -> dict[str, int]:
    """Return the options of both stacks."""
    return {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in options.items()}


def dropouts(dropout: float, attention: float, activation: float) -> dict[str, float]:
    return {"dropout": dropout, "attention_dropout": attention, "activation_dropout": activation}


BASE = sides(embed_dim=512, attention_heads=8, layers=6)
BIG = BASE | sides(embed_dim=1024, attention_heads=16)
FFN, BIG_FFN = sides(ffn_embed_dim=2048), sides(ffn_embed_dim=4096)
IWSLT = sides(attention_heads=4)
SMALL_FFN = IWSLT | sides(ffn_embed_dim=1024)


# --- depth-wise LSTM -------------------------------------------------------------------------------------------------

D_BASE = BASE | {
    **{"depthwise_hidden_dim": 2048, "depthwise_gate_scope": "stack", "depthwise_sharing": "gates", "dropout": 0.1},
    **{"depthwise_cell": "lstm", "depthwise_hidden_layers": 2, "depthwise_hidden_activation": "glu"},
    **{"decoder_merge": "add", "max_relative_positions": 0},
    **{"depthwise_forget_bias": 0.0, "depthwise_gate_gain": 1.0, "depthwise_gate_norm": "separate"},
    **{"depthwise_attention_skip": False},
}
D_BIG = D_BASE | BIG | {"depthwise_hidden_dim": 4096, "dropout": 0.3}
D_BIG_12L = D_BIG | sides(layers=12)
D_BIG_12L_6L = D_BIG_12L | {"decoder_layers": 6, "max_relative_positions": 16, "relative_position_terms": "key"}
TABLE_2 = D_BASE | {"depthwise_gate_scope": "model"}

# --- shallow-to-deep -------------------------------------------------------------------------------------------------

S_BASE = BASE | FFN | dropouts(0.1, 0.1, 0.1) | {
    **{"encoder_block_size": 6, "max_relative_positions": 8, "activation_fn": "relu"},
    **{"relative_position_terms": "key", "inter_similarity_weight": 0.0},
}  # fmt: skip
S_BIG = S_BASE | BIG | BIG_FFN | {"dropout": 0.3}
ABSOLUTE, UNCONNECTED = {"max_relative_positions": 0}, {"encoder_block_size": 0}

# --- multi-unit ------------------------------------------------------------------------------------------------------

M_BASE = BASE | FFN | dropouts(0.2, 0.0, 0.2) | {
    **{"max_relative_positions": 16, "relative_position_terms": "key-value", "activation_fn": "relu"},
    **{"encoder_units": 4, "unit_inputs": "identity", "unit_mask_rate": 0.0, "unit_noise_rate": 0.85},
    **{"unit_sharing": "none", "unit_sequential": False, "permutation_penalty": None},
    **{"permutation_at_inference": "soft"},
}  # fmt: skip
SEQUENTIAL = M_BASE | {"unit_inputs": "identity,swap,mask,disorder", "unit_sequential": True}
M_BIG = M_BASE | BIG | BIG_FFN | {"encoder_units": 1}

#: Each preset, by the tables of the papers.
EXPECTED: dict[str, dict[str, dict[str, Any]]] = {
    DEPTHWISE: {
        "open": D_BASE | {"depthwise_forget_bias": 2.0, "depthwise_gate_gain": 0.25, "depthwise_attention_skip": True},
        "iwslt_de_en": D_BASE | IWSLT | {"depthwise_hidden_dim": 1024},
        "wmt_en_de": D_BASE,
        "wmt_en_de_big": D_BIG,
        "wmt_en_fr_big": D_BIG | {"dropout": 0.1},
        **{f"wmt_en_de_{layers}l": D_BASE | sides(layers=layers) for layers in (3, 12, 18, 24)},
        "wmt_en_de_big_12l": D_BIG_12L,
        "wmt_en_de_big_12l_6l": D_BIG_12L_6L,
        "wmt_en_de_big_12l_6l_1layer": D_BIG_12L_6L | {"depthwise_hidden_layers": 1},
        "wmt_en_de_6l": TABLE_2,
        "wmt_en_de_rnn": D_BASE | {"depthwise_cell": "rnn"},
        "wmt_en_de_1layer": TABLE_2 | {"depthwise_hidden_layers": 1},
        "wmt_en_de_hidden1536": TABLE_2 | {"depthwise_hidden_dim": 1536},
        "wmt_en_de_concat": D_BASE | {"decoder_merge": "concat"},
        "wmt_en_de_two_cells": D_BASE | {"decoder_merge": "two-cells"},
        "wmt_en_de_share_all": TABLE_2 | {"depthwise_sharing": "all"},
        "wmt_en_de_share_none": D_BASE | {"depthwise_sharing": "none"},
        "wmt_en_de_gelu": D_BASE | {"depthwise_hidden_activation": "gelu"},
    },
    SDT: {
        "iwslt_de_en": S_BASE | SMALL_FFN,
        "wmt_en_de": S_BASE,
        "wmt_en_de_big": S_BIG,
        "wmt_en_fr_big": S_BIG | {"dropout": 0.1},
        **{f"wmt_en_de_{layers}l": S_BASE | {"encoder_layers": layers} for layers in (24, 30, 48, 54, 60)},
        "wmt_en_de_big_24l": S_BIG | {"encoder_layers": 24},
        "wmt_en_de_pre_norm": S_BASE | UNCONNECTED | ABSOLUTE,
        "wmt_en_de_big_pre_norm": S_BIG | UNCONNECTED | ABSOLUTE,
        **{f"wmt_en_de_{layers}l_absolute": S_BASE | {"encoder_layers": layers} | ABSOLUTE for layers in (24, 48)},
        "wmt_en_de_big_24l_absolute": S_BIG | {"encoder_layers": 24} | ABSOLUTE,
        "wmt_en_de_30l_deep": S_BASE | {"encoder_layers": 30} | UNCONNECTED,
        "wmt_en_de_30l_dlcl": S_BASE | {"encoder_layers": 30, "encoder_block_size": 1},
        "wmt_en_de_reg": S_BASE | UNCONNECTED | ABSOLUTE | {"inter_similarity_weight": 1.0},
    },
    MUTE: {
        "biased": SEQUENTIAL | {"unit_sequential": False},
        "sequential": SEQUENTIAL,
        "iwslt_de_en": M_BASE | SMALL_FFN,
        "wmt_en_de": M_BASE,
        "wmt_zh_en": M_BASE | {"dropout": 0.1, "activation_dropout": 0.1},
        "nist_zh_en": M_BASE | {"dropout": 0.4, "activation_dropout": 0.4},
        "wmt_en_de_relative": M_BASE | {"encoder_units": 1},
        "wmt_en_de_big": M_BIG,
        "wmt_en_fr_big": M_BIG | {"dropout": 0.1, "activation_dropout": 0.1},
        "sequential_no_identity": SEQUENTIAL | {"encoder_units": 3, "unit_inputs": "swap,mask,disorder"},
        "sequential_no_swap": SEQUENTIAL | {"encoder_units": 3, "unit_inputs": "identity,mask,disorder"},
        "sequential_no_mask": SEQUENTIAL | {"encoder_units": 3, "unit_inputs": "identity,swap,disorder"},
        "sequential_no_disorder": SEQUENTIAL | {"encoder_units": 3, "unit_inputs": "identity,swap,mask"},
        "sequential_no_bias": M_BASE | {"unit_sequential": True},
        "shared_attention": M_BASE | {"unit_sharing": "attention"},
        "shared_ffn": M_BASE | {"unit_sharing": "ffn"},
        **{f"{units}u": M_BASE | {"encoder_units": units} for units in (1, 2, 3, 5, 6)},
    },
}
# The big deep ones are also registered by shorter names.
EXPECTED[DEPTHWISE] |= {
    name.removeprefix("wmt_en_de_"): row for name, row in EXPECTED[DEPTHWISE].items() if "big_12l" in name
}
# Not the papers': deep encoders with shallow decoders.
for family, base in ((DEPTHWISE, D_BASE), (SDT, S_BASE), (MUTE, M_BASE)):
    EXPECTED[family] |= {
        "wmt_en_de_12l_1l": base | {"encoder_layers": 12, "decoder_layers": 1},
        "wmt_en_de_24l_2l": base | {"encoder_layers": 24, "decoder_layers": 2},
    }

every_preset = pytest.mark.parametrize(
    ("family", "preset"), [(family, preset) for family, presets in PRESETS.items() for preset in presets]
)


def completed(family: str, preset: str, **given: Any) -> Any:
    """The whole configuration of a preset, as fairseq makes it."""
    args = SimpleNamespace(**given)
    ARCH_CONFIG_REGISTRY[f"{family}_{preset}"](args)
    return options_class(family).complete(args)


@cache
def build(family: str, preset: str, vocabulary: int = 100, **options: Any) -> FairseqEncoderDecoderModel:
    """Without memory, all embeddings tied."""
    args = SimpleNamespace(share_all_embeddings=True, **options)
    ARCH_CONFIG_REGISTRY[f"{family}_{preset}"](args)
    with torch.device("meta"):
        return ARCH_MODEL_REGISTRY[f"{family}_{preset}"].build_model(args, tasks(vocabulary))


@cache
def tasks(vocabulary: int) -> SimpleNamespace:
    return task_of(vocabulary, vocabulary)


@pytest.mark.parametrize("family", FAMILIES)
def test_all_presets_are_registered(family: str) -> None:
    assert set(PRESETS[family]) == set(EXPECTED[family])
    registered = {name for name, model in ARCH_MODEL_REGISTRY.items() if model is MODEL_REGISTRY[family]}
    assert registered == {family} | {f"{family}_{preset}" for preset in EXPECTED[family]}


@every_preset
def test_a_preset_is_the_papers_row(family: str, preset: str) -> None:
    config, row = completed(family, preset), EXPECTED[family][preset]
    assert {name: getattr(config, name) for name in row} == row
    assert set(PRESETS[family][preset]) <= set(vars(config))
    model = build(family, preset)
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (row["encoder_layers"], row["decoder_layers"])
