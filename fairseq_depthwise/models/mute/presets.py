"""Presets of ``mute_transformer``: the rows of the paper's tables."""

from __future__ import annotations

from typing import Any

from fairseq_depthwise.models.base.config import DEEP_SHALLOW, both_sides

_BIASED = {"unit_inputs": "identity,swap,mask,disorder"}
_SEQUENTIAL = {**_BIASED, "unit_sequential": True}


def _dropout(probability: float) -> dict[str, float]:
    """Set the dropouts of sub-layers and of feed-forward nets, which are one option in the authors' program."""
    return {"dropout": probability, "activation_dropout": probability}


def _without(noise: str) -> dict[str, Any]:
    """Return the full model without one of its units (Table 4)."""
    noises = _BIASED["unit_inputs"].split(",")
    noises.remove(noise)
    return {**_SEQUENTIAL, "encoder_units": len(noises), "unit_inputs": ",".join(noises)}


_BIG = {**both_sides(embed_dim=1024, attention_heads=16, ffn_embed_dim=4096), "encoder_units": 1}

PRESETS: dict[str, dict[str, Any]] = {
    # Tables 1 to 3; the plain name is the first of these rows.
    "biased": _BIASED,
    "sequential": _SEQUENTIAL,
    # The data sets: IWSLT and En-Fr are not in the paper.
    "iwslt_de_en": both_sides(embed_dim=512, attention_heads=4, ffn_embed_dim=1024),
    "wmt_en_de": {},
    "wmt_zh_en": _dropout(0.1),
    "nist_zh_en": _dropout(0.4),
    # The baselines with relative positions: one unit, and one unit of the Big model.
    "wmt_en_de_relative": {"encoder_units": 1},
    "wmt_en_de_big": _BIG,
    "wmt_en_fr_big": {**_BIG, **_dropout(0.1)},
    # Table 4: without one unit each, without noise, without an order.
    **{f"sequential_no_{noise}": _without(noise) for noise in ("identity", "swap", "disorder", "mask")},
    "sequential_no_bias": {"unit_sequential": True},
    # Table 6: "4 Self. + 4 FFN" is the plain name.
    "shared_attention": {"unit_sharing": "attention"},
    "shared_ffn": {"unit_sharing": "ffn"},
    # Figure 2: 4 units are the plain name.
    **{f"{units}u": {"encoder_units": units} for units in (1, 2, 3, 5, 6)},
    # Not in the paper.
    **DEEP_SHALLOW,
}
