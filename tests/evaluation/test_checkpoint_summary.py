"""What a checkpoint says of itself: sizes against the model that is in it, the rest against what was put there."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from fairseq.models import MODEL_REGISTRY
from tiny_checkpoints import tiny_checkpoint
from tiny_models import task_of
from torch import Tensor

from fairseq_depthwise.evaluation.checkpoint_summary import summarize


def summary_of(name: str = "sdt_transformer", **given: Any) -> dict[str, Any]:
    return summarize(tiny_checkpoint(name, **given)[0], "checkpoint.pt")


def as_saved_on_a_gpu(values: dict[str, Tensor]) -> dict[str, Tensor]:
    """fairseq moves each tensor to the CPU by itself, so that tied ones are several."""
    return {name: tensor.clone() for name, tensor in values.items()}


def as_copied_layers(values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Different parameters of one value in one place: the second layer is the first."""
    return {name: values.get(name.replace("layers.1.", "layers.0."), tensor) for name, tensor in values.items()}


@pytest.mark.parametrize("saved", [dict, as_saved_on_a_gpu, as_copied_layers])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("sdt_transformer", {"share_decoder_input_output_embed": True, "encoder_layers": 2, "decoder_layers": 5}),
        ("depthwise_lstm_transformer", {"share_all_embeddings": True}),
        ("depthwise_lstm_transformer", {"depthwise_sharing": "all", "depthwise_gate_scope": "model"}),
    ],
)
def test_parameters_are_those_of_the_model_however_they_are_saved(
    name: str, options: dict[str, Any], saved: Callable[[dict[str, Tensor]], dict[str, Tensor]]
) -> None:
    state, model = tiny_checkpoint(name, **options)
    state["model"] = saved(state["model"])
    summary = summarize(state, "checkpoint.pt")
    expected = {
        "architecture": name, "family": name, "dtype": "float32", "ties_known": True, "unused_copies": 0,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "encoder_layers": len(model.encoder.layers), "decoder_layers": len(model.decoder.layers),
    }  # fmt: skip
    assert expected.items() <= summary.items()


STOCK = {
    "arch": "transformer", "share_all_embeddings": True, "encoder_layers": 3, "decoder_layers": 2,
    **{f"{side}_{size}": number for side in ("encoder", "decoder") for size, number in
       (("embed_dim", 16), ("ffn_embed_dim", 24), ("attention_heads", 2))},
}  # fmt: skip


@pytest.mark.parametrize("style", ["cfg", "args"])
@pytest.mark.parametrize("saved", [dict, as_saved_on_a_gpu])
def test_copies_of_a_stock_transformer_are_counted_apart(
    saved: Callable[[dict[str, Tensor]], dict[str, Tensor]], style: str
) -> None:
    model = MODEL_REGISTRY["transformer"].build_model(Namespace(**STOCK), task_of())
    state = {"model": saved(model.state_dict()), "optimizer_history": [{"num_updates": 5}]}
    state |= {"args": Namespace(**STOCK)} if style == "args" else {"args": None, "cfg": {"model": Namespace(**STOCK)}}
    summary = summarize(state, "checkpoint.pt")
    copies = 3 * (4 * 16 * 16 + 4 * 16 + 2 * 16 * 24 + 16 + 24)  # attention and feed-forward net of each layer
    assert summary["unused_copies"] == copies
    assert summary["parameters"] == sum(parameter.numel() for parameter in model.parameters()) - copies
    assert (summary["encoder_layers"], summary["decoder_layers"], summary["encoder_embed_dim"]) == (3, 2, 16)


@pytest.mark.parametrize("arch", ["of_another_plugin", "lstm", None])
def test_of_other_architectures_the_file_says_what_is_tied(arch: str | None) -> None:
    table = torch.ones(4, 2)
    values = {"decoder.embed": table, "decoder.out": table, "decoder.layers.0.w": torch.ones(3).half()}
    summary = summarize({"cfg": {"model": {"arch": arch, "x": 1}}, "model": values}, "checkpoint.pt")
    expected = {"parameters": 11, "ties_known": False, "dtype": "float16, float32", "decoder_layers": 1}
    unknown = ("encoder_layers", "decoder_embed_dim", "updates", "epoch", "peak_lr", "val_score", "stage")
    assert (expected | dict.fromkeys(unknown)).items() <= summary.items()


GROWTH = {"growth_stages": "2:1,4:1,6:", "growth_strategy": "top-most"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"extra": {"train_iterator": {"epoch": 3, "iterations_in_epoch": 7}}}, {"epoch": 3, "mid_epoch": True}),
        # The number of the next epoch.
        ({"extra": {"train_iterator": {"epoch": 3, "iterations_in_epoch": 0}}}, {"epoch": 2, "mid_epoch": False}),
        ({"parts": {"lr_scheduler": {"_name": "fixed", "lr": [0.1, 0.3, 0.2]}}}, {"peak_lr": 0.3}),
        ({"parts": {"lr_scheduler": {"_name": "triangular", "lr": [0.1], "max_lr": 0.5}}}, {"peak_lr": 0.5}),
        ({"parts": {"lr_scheduler": {"_name": "fixed"}, "optimization": {"lr": [0.4]}}}, {"peak_lr": 0.4}),
        ({"parts": {"task": {**GROWTH, "growth_side": "encoder"}}, "encoder_layers": 2}, {"stage": 1, "stages": 3}),
        (
            {"parts": {"task": {**GROWTH, "growth_side": "decoder"}}, "encoder_layers": 4, "decoder_layers": 6},
            {"stage": 3, "growth_side": "decoder"},
        ),
        ({"parts": {"task": {**GROWTH, "growth_side": "encoder"}}, "encoder_layers": 8}, {"stage": None}),
        ({"extra": {"val_loss": 4.5, "best": numpy.float32(27.5)}}, {"val_score": 4.5, "best_score": 27.5}),
        ({}, {"updates": 1200, "lr_scheduler": "inverse_sqrt_restart", "peak_lr": 0.002, "restarts": (400, 800)}),
    ],
)
def test_the_training(given: dict[str, Any], expected: dict[str, Any]) -> None:
    summary = summary_of(**given)
    assert {name: summary[name] for name in expected} == expected
