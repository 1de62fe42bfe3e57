"""Options of the shallow-to-deep model that are impossible: one sentence that names the option and the value."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_models import FAMILIES, build_tiny, task_of

from fairseq_compat import UserError
from fairseq_depthwise.models.sdt.model import SDTTransformer


def refusal(**options: Any) -> str:
    """What building a model of these options says."""
    with pytest.raises(UserError) as error:
        SDTTransformer.build_model(SimpleNamespace(**(FAMILIES["sdt_transformer"] | options)), task_of())
    return str(error.value)


@pytest.mark.parametrize(
    ("layers", "block_size", "fitting"),
    [(6, 4, "1, 2, 3, 6"), (3, 6, "1, 3"), (7, 2, "1, 7"), (1, 6, "1"), (54, 4, "1, 2, 3, 6, 9, 18, 27, 54")],
)
def test_layers_that_do_not_fill_blocks(layers: int, block_size: int, fitting: str) -> None:
    assert refusal(encoder_layers=layers, encoder_block_size=block_size) == (
        f"--encoder-layers {layers} is not a multiple of --encoder-block-size {block_size}; block sizes that fit are "
        f"{fitting}, or 0 for no connections"
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"encoder_block_size": -1}, "--encoder-block-size -1 is out of range; it must be at least 0"),
        ({"inter_similarity_weight": -0.5}, "--inter-similarity-weight -0.5 is out of range; it must be at least 0"),
        ({"max_relative_positions": -1}, "--max-relative-positions -1 is out of range; it must be at least 0"),
        ({"encoder_ffn_embed_dim": 0}, "--encoder-ffn-embed-dim 0 is out of range; it must be at least 1"),
        ({"decoder_ffn_embed_dim": -8}, "--decoder-ffn-embed-dim -8 is out of range; it must be at least 1"),
        ({"activation_dropout": 1.0}, "--activation-dropout 1.0 is out of range; it must be at least 0 and below 1"),
        ({"attention_dropout": -0.1}, "--attention-dropout -0.1 is out of range; it must be at least 0 and below 1"),
        ({"activation_fn": "swish"}, "--activation-fn swish is not a choice; it must be one of relu, gelu"),
        (
            {"relative_position_terms": "value"},
            "--relative-position-terms value is not a choice; it must be one of key, key-value",
        ),
        (
            {"encoder_attention_heads": 3},
            "--encoder-attention-heads 3 does not divide --encoder-embed-dim 16; 2 does",
        ),
        (
            {"quant_noise_pq": 0.1, "encoder_ffn_embed_dim": 20},
            "--quant-noise-pq-block-size 8 does not divide 20, the input width of one of the linear maps",
        ),
    ],
    ids=str,
)
def test_a_value_that_is_impossible(options: dict[str, Any], sentence: str) -> None:
    assert refusal(**options) == sentence


@pytest.mark.parametrize(
    "options",
    [
        {"encoder_layers": 5, "encoder_block_size": 0},
        {"encoder_layers": 5, "encoder_block_size": 1},
        {"encoder_layers": 5, "encoder_block_size": 5},
        {"encoder_layers": 1, "decoder_layers": 1, "encoder_block_size": 1},
        {"encoder_ffn_embed_dim": 1, "decoder_ffn_embed_dim": 1},
        {"decoder_layers": 5},
    ],
    ids=str,
)
def test_what_is_possible_is_built(options: dict[str, Any]) -> None:
    model = build_tiny("sdt_transformer", **options)
    with torch.no_grad():
        assert model(torch.tensor([[5, 2]]), None, torch.tensor([[2, 5]]))[0].isfinite().all()
