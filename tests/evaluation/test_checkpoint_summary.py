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

from fairseq_compat import UserError
from fairseq_depthwise.evaluation.checkpoint_summary import CheckpointSummary, summarize


def summary_of(name: str = "sdt_transformer", **given: Any) -> CheckpointSummary:
    return summarize(tiny_checkpoint(name, **given)[0], "checkpoint.pt")


# --- the model ------------------------------------------------------------------------------------------------------


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
    assert summary.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert summary.ties_known
    assert summary.unused_copies == 0
    assert (summary.encoder_layers, summary.decoder_layers) == (len(model.encoder.layers), len(model.decoder.layers))
    assert (summary.architecture, summary.family, summary.dtype) == (name, name, "float32")
    assert (summary.encoder_embed_dim, summary.encoder_attention_heads) == (16, 2)
    assert (summary.decoder_embed_dim, summary.decoder_attention_heads) == (16, 2)


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
    assert summary.unused_copies == copies
    assert summary.parameters == sum(parameter.numel() for parameter in model.parameters()) - copies
    assert (summary.encoder_layers, summary.decoder_layers, summary.encoder_embed_dim) == (3, 2, 16)
    assert (summary.architecture, summary.family) == ("transformer", "transformer")


@pytest.mark.parametrize("arch", ["of_another_plugin", "lstm", None])
def test_of_other_architectures_the_file_says_what_is_tied(arch: str | None) -> None:
    table = torch.ones(4, 2)
    values = {"decoder.embed": table, "decoder.out": table, "decoder.layers.0.w": torch.ones(3).half()}
    summary = summarize({"cfg": {"model": {"arch": arch, "x": 1}}, "model": values}, "checkpoint.pt")
    assert (summary.parameters, summary.ties_known) == (11, False)
    assert (summary.encoder_layers, summary.decoder_layers, summary.decoder_embed_dim) == (None, 1, None)
    assert (summary.architecture, summary.family) == (arch, "lstm" if arch == "lstm" else None)
    assert summary.dtype == "float16, float32"


def test_no_file_that_an_option_names_is_opened() -> None:
    state, _ = tiny_checkpoint()
    state["cfg"]["model"] |= {"encoder_embed_path": "nowhere.vec", "decoder_embed_path": "nowhere.vec"}
    assert summarize(state, "checkpoint.pt").ties_known


# --- the training ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("iterator", "expected"),
    [
        ({"epoch": 3, "iterations_in_epoch": 7}, (3, True)),
        ({"epoch": 3, "iterations_in_epoch": 0}, (2, False)),  # the number of the next
        ({"epoch": 1, "iterations_in_epoch": 0}, (0, False)),
        (None, (None, False)),
    ],
)
def test_epoch(iterator: dict[str, int] | None, expected: tuple[int | None, bool]) -> None:
    summary = summary_of(extra={"train_iterator": iterator} if iterator else {})
    assert (summary.epoch, summary.mid_epoch) == expected
    assert summary.updates == 1200
    assert (summary.lr_scheduler, summary.peak_lr, summary.restarts) == ("inverse_sqrt_restart", 0.002, (400, 800))


@pytest.mark.parametrize(
    ("parts", "peak"),
    [
        ({"lr_scheduler": {"_name": "fixed", "lr": [0.1, 0.3, 0.2]}}, 0.3),
        ({"lr_scheduler": {"_name": "triangular", "lr": [0.1], "max_lr": 0.5}}, 0.5),
        ({"lr_scheduler": {"_name": "fixed"}, "optimization": {"lr": [0.4]}}, 0.4),
        ({"lr_scheduler": None}, None),
    ],
)
def test_peaks_of_other_schedules(parts: dict[str, Any], peak: float | None) -> None:
    assert summary_of(parts=parts).peak_lr == peak


@pytest.mark.parametrize(
    ("side", "options", "stage"),
    [
        ("encoder", {"encoder_layers": 2}, 1),
        ("encoder", {"encoder_layers": 4, "decoder_layers": 2}, 2),
        ("decoder", {"encoder_layers": 4, "decoder_layers": 6}, 3),
        ("both", {"encoder_layers": 6, "decoder_layers": 6}, 3),
        ("encoder", {"encoder_layers": 8}, None),
    ],
)
def test_stage_is_the_one_of_the_depth(side: str, options: dict[str, int], stage: int | None) -> None:
    growth = {"growth_stages": "2:1,4:1,6:", "growth_side": side, "growth_strategy": "top-most"}
    summary = summary_of(parts={"task": growth}, **options)
    assert (summary.stage, summary.stages) == (stage, 3)
    assert (summary.growth_stages, summary.growth_side, summary.growth_strategy) == ("2:1,4:1,6:", side, "top-most")


# --- what else is there ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        ({"state": {0: {"step": 1}}, "param_groups": []}, True),
        ({"state": {}, "param_groups": []}, False),  # fairseq-depthwise grow
        (None, False),
    ],
)
def test_optimizer_state(optimizer: dict[str, Any] | None, expected: bool) -> None:
    state, _ = tiny_checkpoint()
    assert summarize({**state, "last_optimizer_state": optimizer}, "checkpoint.pt").optimizer_state is expected


def test_remarks_of_other_commands() -> None:
    versions = {"torch": "2.6.0", "python": "3.13.0"}
    summary = summary_of(
        extra={"averaged_from": ["a.pt", "b.pt"], "grown_from": "2 encoder layers, top", "ema": {"x": torch.ones(1)}}
        | {"versions": versions}
    )
    assert (summary.averaged_from, summary.grown_from) == (("a.pt", "b.pt"), "2 encoder layers, top")
    assert summary.moving_average
    assert summary.versions == versions


def test_what_is_not_there_is_said_to_be_missing() -> None:
    state, _ = tiny_checkpoint()
    summary = summarize({"cfg": {"model": state["cfg"]["model"]}, "model": state["model"]}, "checkpoint.pt")
    assert (summary.updates, summary.epoch, summary.lr_scheduler, summary.peak_lr) == (None, None, None, None)
    assert (summary.metric, summary.val_score, summary.best_score) == (None, None, None)
    assert (summary.averaged_from, summary.grown_from, summary.versions) == ((), None, None)
    assert (summary.stage, summary.stages, summary.growth_stages) == (None, None, None)
    assert not summary.optimizer_state
    assert not summary.moving_average


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({"val_loss": 4.5, "best": 4.25}, ("bleu", 4.5, 4.25)),
        ({"val_loss": None, "best": numpy.float32(27.5)}, ("bleu", None, 27.5)),
        ({"val_loss": None}, (None, None, None)),
    ],
)
def test_scores(extra: dict[str, Any], expected: tuple[Any, ...]) -> None:
    summary = summary_of(extra=extra, parts={"checkpoint": {"best_checkpoint_metric": "bleu"}})
    assert (summary.metric, summary.val_score, summary.best_score) == expected
    assert summary.best_score is None or type(summary.best_score) is float


def test_without_options_of_a_model_it_is_refused() -> None:
    with pytest.raises(UserError, match=r"x\.pt is not a fairseq checkpoint: it has no options of a model"):
        summarize({"cfg": {"x": 1}, "model": {}}, "x.pt")
