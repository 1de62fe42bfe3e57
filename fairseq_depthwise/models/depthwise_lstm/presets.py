"""Presets of ``depthwise_lstm_transformer``: the rows of the papers' tables."""

from __future__ import annotations

from typing import Any

from fairseq_depthwise.models.base.config import DEEP_SHALLOW, both_sides

_BIG = {**both_sides(embed_dim=1024, attention_heads=16), "depthwise_hidden_dim": 4096}

#: The 6-layer tables' parameter counts are those of one set of gates for both stacks.
_TABLE = {"depthwise_gate_scope": "model"}

#: Big models of Table 6 with an encoder of 12 layers and a decoder of 6, and relative positions.
_BIG_12L_6L = {**_BIG, "encoder_layers": 12, "dropout": 0.3, "max_relative_positions": 16}

#: Not in the paper: forget gates that start open, gates that start close to constant, and the attention's output added
#: to the hidden value.
OPEN = {"depthwise_forget_bias": 2.0, "depthwise_gate_gain": 0.25, "depthwise_attention_skip": True}

PRESETS: dict[str, dict[str, Any]] = {
    "open": OPEN,
    # Table 1, and small data.
    "iwslt_de_en": {**both_sides(embed_dim=512, attention_heads=4), "depthwise_hidden_dim": 1024},
    "wmt_en_de": {},
    "wmt_en_de_big": {**_BIG, "dropout": 0.3},
    "wmt_en_fr_big": _BIG,
    # Table 2.
    "wmt_en_de_6l": _TABLE,
    "wmt_en_de_rnn": {"depthwise_cell": "rnn"},
    # Table 3.
    "wmt_en_de_1layer": {**_TABLE, "depthwise_hidden_layers": 1},
    "wmt_en_de_hidden1536": {**_TABLE, "depthwise_hidden_dim": 1536},
    # Table 4.
    "wmt_en_de_concat": {"decoder_merge": "concat"},
    "wmt_en_de_two_cells": {"decoder_merge": "two-cells"},
    # Table 5.
    "wmt_en_de_share_all": {**_TABLE, "depthwise_sharing": "all"},
    "wmt_en_de_share_none": {"depthwise_sharing": "none"},
    # The first version of the paper: GELU instead of the GLU. It gives no counts, so the gates are as in its text.
    "wmt_en_de_gelu": {"depthwise_hidden_activation": "gelu"},
    # Table 6.
    **{f"wmt_en_de_{layers}l": both_sides(layers=layers) for layers in (3, 12, 18, 24)},
    "wmt_en_de_big_12l": {**_BIG, **both_sides(layers=12), "dropout": 0.3},
    "wmt_en_de_big_12l_6l": _BIG_12L_6L,
    "wmt_en_de_big_12l_6l_1layer": {**_BIG_12L_6L, "depthwise_hidden_layers": 1},
    # Not in the paper.
    **DEEP_SHALLOW,
}
# The big deep presets also have short names.
PRESETS |= {name.removeprefix("wmt_en_de_"): PRESETS[name] for name in list(PRESETS) if "big_12l" in name}
