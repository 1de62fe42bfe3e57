"""Options that are impossible, or contradict each other or the data: the error names the option and its value."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.models import MODEL_REGISTRY
from tiny_models import FAMILIES, TINY, build_tiny, task_of

from fairseq_compat import UserError
from fairseq_depthwise.models.depthwise_lstm.model import DepthwiseLSTMTransformer

DEPTHWISE, SDT, MUTE = FAMILIES

#: Option -> values out of range, or no choice; in every family that has the option.
BAD_VALUES: dict[str, list[Any]] = {
    "dropout": [1.5, -0.1, math.nan],
    "attention_dropout": [-0.1],
    "activation_dropout": [1.0],
    "encoder_layers": [0, 2.5, True],
    "share_all_embeddings": [2],
    "encoder_layerdrop": [1.0],
    "decoder_layerdrop": [-0.5],
    "max_relative_positions": [-1],
    "relative_position_terms": ["value"],
    "encoder_attention_heads": [3],
    "decoder_attention_heads": [5],
    "decoder_embed_dim": [32],
    "adaptive_softmax_cutoff": ["5,8"],
    "quant_noise_pq": [0.1],
    "quant_noise_scalar": [0.1],
}

BAD_VALUES_OF: dict[str, dict[str, list[Any]]] = {
    DEPTHWISE: {
        "depthwise_hidden_dim": [1, 25],
        "depthwise_forget_bias": [math.nan, -math.inf],
        "depthwise_gate_norm": ["both"],
        "depthwise_cell": ["gru"],
        "depthwise_hidden_layers": [3],
        "depthwise_hidden_activation": ["tanh"],
        "depthwise_sharing": ["some"],
        "depthwise_gate_scope": ["layer"],
        "decoder_merge": ["mean"],
        "depthwise_kernel": ["fast"],
    },
    SDT: {
        "encoder_block_size": [-1],
        "inter_similarity_weight": [-0.5],
        "encoder_ffn_embed_dim": [0],
        "decoder_ffn_embed_dim": [-8],
        "activation_fn": ["swish"],
    },
    MUTE: {
        "encoder_units": [0, 9],
        "unit_inputs": ["identity,swop,mask", "", "identity,swap"],
        "unit_mask_rate": [-0.1, 1.5],
        "unit_noise_rate": [-0.5, 1.5],
        "unit_sharing": ["all"],
        "permutation_penalty": [0.5],  # without an order
        "permutation_at_inference": ["hard"],
    },
}

#: The first option of each is the one whose value is named.
CONTRADICTIONS: list[tuple[str, dict[str, Any]]] = [
    (DEPTHWISE, {"decoder_embed_path": "x", "share_all_embeddings": True}),
    (DEPTHWISE, {"depthwise_gate_scope": "model", "depthwise_cell": "rnn"}),
    (DEPTHWISE, {"depthwise_gate_scope": "model", "depthwise_sharing": "none"}),
    (DEPTHWISE, {"depthwise_gate_scope": "model", "decoder_merge": "concat"}),
    (DEPTHWISE, {"log_gates": True, "depthwise_cell": "rnn"}),
    (DEPTHWISE, {"depthwise_forget_bias": 1.0, "depthwise_cell": "rnn"}),
    (DEPTHWISE, {"depthwise_attention_skip": True, "depthwise_cell": "rnn"}),
    (MUTE, {"unit_inputs": "identity,swap", "encoder_units": 1}),
    (MUTE, {"unit_mask_rate": 0.1, "unit_inputs": "swap"}),
    (MUTE, {"unit_sharing": "ffn", "encoder_units": 1}),
    (MUTE, {"unit_sequential": True, "encoder_units": 1}),
    (MUTE, {"permutation_penalty": -1.0, "unit_sequential": True}),
    (MUTE, {"permutation_at_inference": "firm", "unit_sequential": True}),
]

CASES = [
    *((family, {name: value}) for family in FAMILIES for name, values in BAD_VALUES.items() for value in values),
    *(
        (family, {name: value})
        for family, of in BAD_VALUES_OF.items()
        for name, values in of.items()
        for value in values
    ),
    *CONTRADICTIONS,
]


def build(family: str, **options: Any) -> object:
    return MODEL_REGISTRY[family].build_model(SimpleNamespace(**(FAMILIES[family] | options)), task_of())


@pytest.mark.parametrize(("family", "options"), CASES, ids=str)
def test_an_impossible_value_is_named(family: str, options: dict[str, Any]) -> None:
    with pytest.raises(UserError) as error:
        build(family, **options)
    message, (name, value) = str(error.value), next(iter(options.items()))
    flag = f"--{name.replace('_', '-')}"
    shown = f" {value:g}" if isinstance(value, float) and f"{flag} {value}" not in message else f" {value}"
    assert f"{flag}{'' if value is True else shown}" in message


@pytest.mark.parametrize(
    ("layers", "block_size", "fitting"),
    [(6, 4, "1, 2, 3, 6"), (3, 6, "1, 3"), (1, 6, "1"), (54, 4, "1, 2, 3, 6, 9, 18, 27, 54")],
)
def test_layers_that_do_not_fill_blocks(layers: int, block_size: int, fitting: str) -> None:
    with pytest.raises(
        UserError, match=rf"--encoder-layers {layers} .*--encoder-block-size {block_size}; .* {fitting},"
    ):
        build(SDT, encoder_layers=layers, encoder_block_size=block_size)


def test_one_table_needs_one_dictionary() -> None:
    with pytest.raises(UserError, match=r"12 and 15 entries; .*--joined-dictionary"):
        DepthwiseLSTMTransformer.build_model(SimpleNamespace(**TINY, share_all_embeddings=True), task_of(12, 15))


@pytest.mark.parametrize(
    ("family", "options"),
    [
        (DEPTHWISE, {"depthwise_hidden_dim": 25, "depthwise_hidden_activation": "gelu"}),  # nothing to halve
        (DEPTHWISE, {"depthwise_hidden_dim": 25, "depthwise_hidden_layers": 1}),  # not used
        (SDT, {"encoder_layers": 5, "encoder_block_size": 5}),
        (SDT, {"encoder_layers": 1, "decoder_layers": 1, "encoder_block_size": 1}),
        (SDT, {"encoder_ffn_embed_dim": 1, "decoder_ffn_embed_dim": 1, "decoder_layers": 5}),
        (MUTE, {"encoder_units": 8, "unit_inputs": "swap"}),
        (MUTE, {"unit_inputs": " swap, mask ,disorder"}),
        (MUTE, {"encoder_units": 1, "unit_inputs": "disorder", "unit_noise_rate": 1}),
        (MUTE, {"unit_sequential": True, "permutation_penalty": 0.0}),
    ],
    ids=str,
)
def test_unusual_values_are_built(family: str, options: dict[str, Any]) -> None:
    model = build_tiny(family, **options).train()
    assert model(torch.tensor([[5, 2]]), None, torch.tensor([[2, 5]]))[0].isfinite().all()
    if "unit_inputs" in options:
        given = [name.strip() for name in options["unit_inputs"].split(",")]
        units = len(model.encoder.layers[0].unit_weights)
        assert model.encoder.layers[0].inputs.noises == tuple(given if len(given) > 1 else given * units)
