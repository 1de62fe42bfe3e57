"""Converts fairseq's own ``transformer`` to an ``sdt_transformer``: options, and names of parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fairseq_compat import UserError

#: Stock's name for a part of a layer -> ours.
_PARTS = {
    "self_attn": "self_attention",
    "encoder_attn": "cross_attention",
    "self_attn_layer_norm": "self_attention_norm",
    "encoder_attn_layer_norm": "cross_attention_norm",
    "final_layer_norm": "feed_forward_norm",
    "fc1": "feed_forward.first",
    "fc2": "feed_forward.second",
    "q_proj": "query_projection",
    "k_proj": "key_projection",
    "v_proj": "value_projection",
    "out_proj": "output_projection",
}

#: Stock's name outside the layers, without the side -> ours.
_OUTSIDE = {
    "embed_tokens.weight": "embedding.tokens.weight",
    "embed_positions.weight": "embedding.positions.weight",
    "layer_norm.weight": "connection.final_norm.weight",
    "layer_norm.bias": "connection.final_norm.bias",
    "output_projection.weight": "output_projection.weight",
}

#: Second copies of the encoder's weights that stock fairseq keeps and never reads.
_COPIES = {
    "in_proj_weight",
    "in_proj_bias",
    "out_proj_weight",
    "out_proj_bias",
    "fc1_weight",
    "fc1_bias",
    "fc2_weight",
    "fc2_bias",
}

_LAYER = re.compile(r"(encoder|decoder)\.layers\.(\d+)\.(.+)")

#: Stock option -> the values with which the model computes what ``sdt_transformer`` computes.
_REQUIRED: dict[str, tuple[Any, ...]] = {
    "encoder_normalize_before": (True,),
    "decoder_normalize_before": (True,),
    "no_decoder_final_norm": (False, None),
    "layernorm_embedding": (False, None),
    "no_cross_attention": (False, None),
    "cross_self_attention": (False, None),
    "adaptive_input": (False, None),
    "tie_adaptive_weights": (False, None),
    "activation_fn": ("relu", "gelu", None),
}


def is_unused_copy(name: str) -> bool:
    """Return whether a stock model's parameter is a second copy of an encoder weight, which fairseq never reads."""
    match = _LAYER.fullmatch(name)
    return match is not None and match[1] == "encoder" and match[3] in _COPIES


def parameters_of_sdt(values: Mapping[str, Tensor], file: str) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Return the parameters of a stock model under our names, and remarks on what is left out.

    Raises:
        UserError: ``sdt_transformer`` has no counterpart to a parameter.
    """
    renamed: dict[str, Tensor] = {}
    copies = 0
    for name, value in values.items():
        side, _, rest = name.partition(".")
        if is_unused_copy(name):
            copies += value.numel()
        elif match := _LAYER.fullmatch(name):
            parts = [_PARTS.get(part, part) for part in match[3].split(".")]
            renamed[f"{match[1]}.layers.{match[2]}.{'.'.join(parts)}"] = value
        elif rest in _OUTSIDE:
            renamed[f"{side}.{_OUTSIDE[rest]}"] = value
        # These are no parameters: the version of the layout, and a tensor that only carries a type and a device.
        elif rest not in ("version", "embed_positions._float_tensor"):
            raise UserError(f"{file} has {name}, which sdt_transformer has no place for")
    remarks = ["the names of its parameters were translated from those of fairseq's transformer"]
    if copies:
        remarks.append(f"its {copies:,} unused second copies of encoder weights were left out")
    return renamed, tuple(remarks)


def options_of_sdt(options: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the options of ``sdt_transformer`` that describe a stock model: no relative positions, no blocks."""
    for option, allowed in _REQUIRED.items():
        value = options.get(option)
        if value not in allowed:
            choices = " or ".join(str(choice) for choice in allowed if choice is not None)
            raise UserError(
                f"{name} was trained with --{option.replace('_', '-')} {value}; a transformer to grow from must have "
                f"{choices} there"
            )
    return {**options, "max_relative_positions": 0, "encoder_block_size": 0}
