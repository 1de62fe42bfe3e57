"""Options that contradict each other or the data: one sentence that names the option and the value."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_models import SOURCE, TARGET, TINY, build_tiny, task_of

from fairseq_compat import UserError
from fairseq_depthwise.models.depthwise_lstm.model import DepthwiseLSTMTransformer


def refusal(**options: Any) -> str:
    """What building a model of these options says."""
    with pytest.raises(UserError) as error:
        DepthwiseLSTMTransformer.build_model(SimpleNamespace(**(TINY | options)), task_of())
    return str(error.value)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"dropout": 1.5}, "--dropout 1.5 is out of range; it must be at least 0 and below 1"),
        ({"dropout": -0.1}, "--dropout -0.1 is out of range"),
        ({"encoder_layers": 0}, "--encoder-layers 0 is out of range; it must be at least 1"),
        ({"max_relative_positions": -1}, "--max-relative-positions -1 is out of range; it must be at least 0"),
        ({"encoder_layerdrop": 1.0}, "--encoder-layerdrop 1.0 is out of range"),
        ({"decoder_layerdrop": -0.5}, "--decoder-layerdrop -0.5 is out of range"),
        ({"quant_noise_pq": 1.0}, "--quant-noise-pq 1.0 is out of range"),
        ({"quant_noise_pq_block_size": 0}, "--quant-noise-pq-block-size 0 is out of range"),
        ({"quant_noise_scalar": 2.0}, "--quant-noise-scalar 2.0 is out of range"),
        ({"adaptive_softmax_dropout": 1.0}, "--adaptive-softmax-dropout 1.0 is out of range"),
        ({"adaptive_softmax_factor": 0.5}, "--adaptive-softmax-factor 0.5 is out of range; it must be at least 1"),
        ({"depthwise_hidden_dim": 1}, "--depthwise-hidden-dim 1 is out of range; it must be at least 2"),
        ({"depthwise_forget_bias": float("nan")}, "--depthwise-forget-bias nan is out of range; it must be finite"),
        ({"depthwise_forget_bias": float("-inf")}, "--depthwise-forget-bias -inf is out of range; it must be finite"),
        ({"dropout": float("nan")}, "--dropout nan is out of range; it must be finite"),
    ],
)
def test_a_number_out_of_range(options: dict[str, Any], sentence: str) -> None:
    assert refusal(**options).startswith(sentence)


@pytest.mark.parametrize(
    ("name", "value", "choices"),
    [
        ("depthwise_cell", "gru", "lstm, rnn"),
        ("depthwise_hidden_layers", 3, "2, 1"),
        ("depthwise_hidden_activation", "tanh", "glu, gelu, relu"),
        ("depthwise_sharing", "some", "gates, none, all"),
        ("depthwise_gate_scope", "layer", "stack, model"),
        ("decoder_merge", "mean", "add, concat, two-cells"),
        ("depthwise_kernel", "fast", "auto, eager, compile, triton"),
        ("relative_position_terms", "value", "key, key-value"),
    ],
)
def test_a_value_that_is_no_choice(name: str, value: object, choices: str) -> None:
    flag = name.replace("_", "-")
    assert refusal(**{name: value}) == f"--{flag} {value} is not a choice; it must be one of {choices}"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"encoder_attention_heads": 3}, "--encoder-attention-heads 3 does not divide --encoder-embed-dim 16; 2 does"),
        ({"decoder_attention_heads": 5}, "--decoder-attention-heads 5 does not divide --decoder-embed-dim 16; 4 does"),
        ({"decoder_embed_dim": 32}, "--encoder-embed-dim 16 and --decoder-embed-dim 32 differ"),
        ({"share_all_embeddings": True, "decoder_embed_path": "x"}, "--decoder-embed-path x contradicts --share-all"),
        (
            {"adaptive_softmax_cutoff": "5,8", "share_decoder_input_output_embed": True},
            "--adaptive-softmax-cutoff 5,8 contradicts --share-decoder-input-output-embed",
        ),
        ({"depthwise_hidden_dim": 25}, "--depthwise-hidden-dim 25 is odd; the GLU halves it"),
        (
            {"depthwise_gate_scope": "model", "depthwise_cell": "rnn"},
            "--depthwise-gate-scope model has no meaning: --depthwise-cell rnn has no gates",
        ),
        (
            {"depthwise_gate_scope": "model", "depthwise_sharing": "none"},
            "--depthwise-gate-scope model contradicts --depthwise-sharing none",
        ),
        (
            {"depthwise_gate_scope": "model", "decoder_merge": "concat"},
            "--depthwise-gate-scope model is impossible with --decoder-merge concat: the encoder's gates read 32 "
            "values and the decoder's 48",
        ),
        (
            {"log_gates": True, "depthwise_cell": "rnn"},
            "--log-gates has nothing to log: --depthwise-cell rnn has no gates",
        ),
        (
            {"depthwise_forget_bias": 1.0, "depthwise_cell": "rnn"},
            "--depthwise-forget-bias 1 has no meaning: --depthwise-cell rnn has no gates",
        ),
    ],
)
def test_a_contradiction(options: dict[str, Any], sentence: str) -> None:
    assert refusal(**options).startswith(sentence)


@pytest.mark.parametrize("cutoffs", ["a", "5,b", "5,3", "5,5", "0,4", "-2", "12", "4,13", ",", "5,", "5;8"])
def test_cutoffs_of_an_adaptive_softmax(cutoffs: str) -> None:
    assert refusal(adaptive_softmax_cutoff=cutoffs).startswith(
        f"--adaptive-softmax-cutoff {cutoffs} must be growing numbers between 1 and 11, one less than the size of the "
        "target dictionary"
    )


def test_tails_of_an_adaptive_softmax_need_width() -> None:
    assert refusal(adaptive_softmax_cutoff="5,8", adaptive_softmax_factor=8.0) == (
        "--adaptive-softmax-factor 8 leaves no width for the last of the 2 tails of --adaptive-softmax-cutoff 5,8; "
        "give a lower factor or fewer cutoffs"
    )


def test_an_adaptive_softmax_needs_its_criterion() -> None:
    model = build_tiny(adaptive_softmax_cutoff="5,8").train()
    output = model(SOURCE, None, TARGET)
    with pytest.raises(UserError, match="trains with --criterion adaptive_loss only"):
        model.get_normalized_probs(output, log_probs=True)


@pytest.mark.parametrize(
    ("options", "width"),
    [
        ({}, 12),  # the hidden net's second map
        ({"encoder_embed_dim": 12, "decoder_embed_dim": 12}, 12),
    ],
)
def test_blocks_of_quantization_noise(options: dict[str, Any], width: int) -> None:
    assert refusal(quant_noise_pq=0.1, **options) == (
        f"--quant-noise-pq-block-size 8 does not divide {width}, the input width of one of the linear maps"
    )


def test_one_table_needs_one_dictionary() -> None:
    with pytest.raises(UserError, match="12 and 15 entries; run fairseq-preprocess with --joined-dictionary"):
        DepthwiseLSTMTransformer.build_model(SimpleNamespace(**TINY, share_all_embeddings=True), task_of(12, 15))


@pytest.mark.parametrize(
    "options",
    [
        {"depthwise_hidden_dim": 25, "depthwise_hidden_activation": "gelu"},  # nothing to halve
        {"depthwise_hidden_dim": 25, "depthwise_hidden_layers": 1},  # not used
        {"depthwise_gate_scope": "model", "depthwise_sharing": "all"},
        {"depthwise_gate_scope": "model", "decoder_merge": "two-cells"},
        {"depthwise_cell": "rnn", "decoder_merge": "concat"},
        {"adaptive_softmax_cutoff": "1"},
        {"adaptive_softmax_cutoff": "5, 8"},
        {"adaptive_softmax_cutoff": ""},
        {"relative_position_terms": "key-value"},
    ],
    ids=str,
)
def test_what_is_no_contradiction_is_built(options: dict[str, Any]) -> None:
    model = build_tiny(**options)
    with torch.no_grad():
        assert model(torch.tensor([[5, 2]]), None, torch.tensor([[2, 5]]))[0].isfinite().all()
