"""Presets of ``sdt_transformer``: the rows of the paper's tables."""

from __future__ import annotations

from typing import Any

from fairseq_depthwise.models.base.config import DEEP_SHALLOW, both_sides

_BIG = both_sides(embed_dim=1024, attention_heads=16, ffn_embed_dim=4096)

#: Without block connections; without relative positions.
_UNCONNECTED = {"encoder_block_size": 0}
_ABSOLUTE = {"max_relative_positions": 0}

PRESETS: dict[str, dict[str, Any]] = {
    # Table 1, and small data.
    "iwslt_de_en": both_sides(embed_dim=512, attention_heads=4, ffn_embed_dim=1024),
    "wmt_en_de": {},
    "wmt_en_de_big": {**_BIG, "dropout": 0.3},
    "wmt_en_fr_big": _BIG,
    **{f"wmt_en_de_{layers}l": {"encoder_layers": layers} for layers in (24, 30, 48, 54, 60)},
    "wmt_en_de_big_24l": {**_BIG, "dropout": 0.3, "encoder_layers": 24},
    # Table 1 without relative positions: the baseline, and the deep models.
    "wmt_en_de_pre_norm": {**_UNCONNECTED, **_ABSOLUTE},
    "wmt_en_de_big_pre_norm": {**_BIG, "dropout": 0.3, **_UNCONNECTED, **_ABSOLUTE},
    **{f"wmt_en_de_{layers}l_absolute": {"encoder_layers": layers, **_ABSOLUTE} for layers in (24, 48)},
    "wmt_en_de_big_24l_absolute": {**_BIG, "dropout": 0.3, "encoder_layers": 24, **_ABSOLUTE},
    # Table 5: no connections, and dense ones.
    "wmt_en_de_30l_deep": {"encoder_layers": 30, **_UNCONNECTED},
    "wmt_en_de_30l_dlcl": {"encoder_layers": 30, "encoder_block_size": 1},
    # Table 6: the regularizer, whose weight the paper does not give.
    "wmt_en_de_reg": {**_UNCONNECTED, **_ABSOLUTE, "inter_similarity_weight": 1.0},
    # Not in the paper.
    **DEEP_SHALLOW,
}
