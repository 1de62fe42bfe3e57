"""fairseq's own transformer as a model to start from: names, options, and what of it cannot be taken over."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest
import torch
from fairseq.models import MODEL_REGISTRY
from growth_checkpoints import STOCK, checkpoint_of, save, stock_file, stock_model
from tiny_models import FAMILIES, build_tiny

from fairseq_compat import UserError
from fairseq_depthwise.growth.trained_model import read_trained_model


def stock_name(ours: str) -> str:
    """A second reading of the names, from ours to fairseq's."""
    for here, there in (
        ("connection.final_norm", "layer_norm"),
        ("embedding.tokens", "embed_tokens"),
        ("embedding.positions", "embed_positions"),
        ("self_attention_norm", "self_attn_layer_norm"),
        ("cross_attention_norm", "encoder_attn_layer_norm"),
        ("feed_forward_norm", "final_layer_norm"),
        ("self_attention", "self_attn"),
        ("cross_attention", "encoder_attn"),
        ("feed_forward.first", "fc1"),
        ("feed_forward.second", "fc2"),
        ("query_projection", "q_proj"),
        ("key_projection", "k_proj"),
        ("value_projection", "v_proj"),
    ):
        ours = ours.replace(here, there)
    # The decoder's projection to the vocabulary has fairseq's name already.
    return ours if ours == "decoder.output_projection.weight" else ours.replace("output_projection", "out_proj")


@pytest.mark.parametrize("learned", [False, True])
def test_stock_parameters_get_our_names(tmp_path: Path, learned: bool) -> None:
    options = {"encoder_learned_pos": learned, "max_source_positions": 30}
    model, args = stock_model(**options)
    found = read_trained_model(save(tmp_path / "stock.pt", checkpoint_of(model.state_dict(), args)))
    assert found.family is MODEL_REGISTRY["sdt_transformer"]
    like = build_tiny(
        "sdt_transformer",
        **{name: value for name, value in STOCK.items() if name in FAMILIES["sdt_transformer"]},
        **options,
        encoder_block_size=0,
        max_relative_positions=0,
    )
    assert found.values.keys() == like.state_dict().keys()
    for name, value in found.values.items():
        assert torch.equal(value, model.state_dict()[stock_name(name)]), name


def test_stock_copies_are_left_out_and_counted(tmp_path: Path) -> None:
    """fairseq 0.12.2 keeps each encoder layer's weights a second time, for a fast path that it cannot take."""
    layer = 4 * (16 * 16 + 16) + 2 * 16 * 24 + 24 + 16
    _, copies = read_trained_model(stock_file(tmp_path)).remarks
    assert f"{2 * layer:,}" in copies


def test_a_stock_model_of_an_older_fairseq(tmp_path: Path) -> None:
    """Options under ``args``; no second copies; counters as buffers."""
    model, args = stock_model()
    copies = tuple(f"{part}_{kind}" for part in ("in_proj", "fc1", "fc2", "out_proj") for kind in ("weight", "bias"))
    values = {name: value for name, value in model.state_dict().items() if not name.endswith(copies)}
    values |= {"encoder.version": torch.ones(1), "decoder.embed_positions._float_tensor": torch.ones(1)}
    args = Namespace(**{name: value for name, value in vars(args).items() if name != "_name"})
    args.arch = "transformer_wmt_en_de"
    state = {**checkpoint_of(values, None), "cfg": None, "args": args}
    found = read_trained_model(save(tmp_path / "old.pt", state))
    assert len(found.remarks) == 1  # the names, and no copies
    ours = found.values["encoder.layers.0.self_attention.query_projection.weight"]
    assert torch.equal(ours, values["encoder.layers.0.self_attn.q_proj.weight"])


@pytest.mark.parametrize("option", ["encoder_normalize_before=False", "layernorm_embedding=True", "activation_fn=tanh"])
def test_a_stock_model_that_computes_something_else(tmp_path: Path, option: str) -> None:
    name, _, value = option.partition("=")
    path = stock_file(tmp_path, **{name: {"False": False, "True": True}.get(value, value)})
    with pytest.raises(UserError, match=f"--growth-from {path} .*--{name.replace('_', '-')} {value}"):
        read_trained_model(path, "--growth-from")
