"""Reading what a run can start from: our families, presets, fairseq's transformer; what differs is named."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.models import MODEL_REGISTRY
from growth_checkpoints import STOCK, checkpoint_of, save, stock_file
from tiny_models import FAMILIES, build_tiny

from fairseq_compat import UserError
from fairseq_depthwise.growth.parameter_sources import Growth
from fairseq_depthwise.growth.trained_model import (
    TrainedModel,
    build_like,
    options_class,
    read_trained_model,
    require_same_kind,
    require_same_shapes,
)
from fairseq_depthwise.models.base.config import EncoderDecoderConfig


def options_of(family: str, **options: Any) -> EncoderDecoderConfig:
    return options_class(family).complete(SimpleNamespace(**(FAMILIES[family] | options)))


def values_of(options: EncoderDecoderConfig) -> dict[str, Any]:
    """Without the architecture's name, which is no option of the model."""
    return {name: value for name, value in vars(options).items() if name != "_name"}


def trained_model(family: str, values: dict[str, torch.Tensor] | None = None, **options: Any) -> TrainedModel:
    """As if it had been read from ``run/last.pt``."""
    return TrainedModel("run/last.pt", MODEL_REGISTRY[family], options_of(family, **options), values or {}, 5)


# --- our families ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("old", [False, True], ids=["cfg", "args"])
def test_one_of_ours(tmp_path: Path, family: str, old: bool) -> None:
    model = build_tiny(family, encoder_layers=2)
    given = {**FAMILIES[family], "encoder_layers": 2, "dropout": 0.25}
    state = checkpoint_of(model.state_dict(), {**given, "_name": family})
    if old:
        state |= {"cfg": None, "args": Namespace(**given, arch=family, data="somewhere")}
    path = save(tmp_path / "ours.pt", state)
    found = read_trained_model(path)
    assert found.path == path
    assert found.family is MODEL_REGISTRY[family]
    assert values_of(found.options) == values_of(options_of(family, encoder_layers=2, dropout=0.25))
    assert (found.depth("encoder"), found.depth("decoder")) == (2, 3)
    assert found.updates == 7
    assert found.remarks == ()
    assert found.values.keys() == model.state_dict().keys()
    assert all(torch.equal(found.values[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize("arch", ["sdt_transformer_wmt_en_de_24l", "depthwise_lstm_transformer_iwslt_de_en"])
def test_a_preset_is_of_its_family(tmp_path: Path, arch: str) -> None:
    """A checkpoint names the architecture of the command line, which need not be the family's own."""
    family = arch.partition("_wmt")[0].partition("_iwslt")[0]
    given = {**FAMILIES[family], "_name": arch}
    found = read_trained_model(save(tmp_path / "preset.pt", checkpoint_of({"a": torch.zeros(1)}, given)))
    assert found.family is MODEL_REGISTRY[family]
    assert values_of(found.options) == values_of(options_of(family))


def test_what_an_older_checkpoint_does_not_say_is_the_default(tmp_path: Path) -> None:
    given = {"_name": "sdt_transformer", "encoder_layers": 12, "dropout": None}
    found = read_trained_model(save(tmp_path / "ours.pt", checkpoint_of({}, given)))
    expected = options_class("sdt_transformer").complete(SimpleNamespace(encoder_layers=12))
    assert values_of(found.options) == values_of(expected)


def test_a_model_like_it_can_be_built() -> None:
    for options in ({}, {"share_all_embeddings": True}):
        values = build_tiny("sdt_transformer", **options).state_dict()
        trained = trained_model("sdt_transformer", values, **options)
        one = build_like(trained).state_dict()
        assert {name: value.shape for name, value in one.items()} == {name: v.shape for name, v in values.items()}
        assert len(build_like(trained, {"encoder_layers": 6}).encoder.layers) == 6


# --- what is no such model -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["lstm", "nobody_knows", None])
def test_another_family(tmp_path: Path, arch: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    variant = type("Variant", (MODEL_REGISTRY["sdt_transformer"],), {})
    monkeypatch.setitem(MODEL_REGISTRY, "sdt_loop", variant)  # somebody's own, which is no family
    path = save(tmp_path / "other.pt", checkpoint_of({}, {"_name": arch}))
    with pytest.raises(UserError, match=f"{path} .* architecture {arch}; .*sdt_transformer") as error:
        read_trained_model(path)
    assert "sdt_loop" not in str(error.value)


def test_a_missing_file(tmp_path: Path) -> None:
    for path in (tmp_path / "none.pt", tmp_path):
        with pytest.raises(UserError, match=f"--growth-from {path} does not exist"):
            read_trained_model(str(path), "--growth-from")


@pytest.mark.parametrize("kept", [0, 100, 0.5])
def test_a_truncated_file(tmp_path: Path, kept: float) -> None:
    path = Path(stock_file(tmp_path))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole)) if isinstance(kept, float) else kept])
    with pytest.raises(UserError, match=r"stock\.pt is (empty|truncated|not a PyTorch file)"):
        read_trained_model(str(path))


@pytest.mark.parametrize(
    "content", [[1, 2], {"weights": {}}, {"model": {}, "cfg": None}, {"model": [1], "args": Namespace()}]
)
def test_what_is_no_checkpoint(tmp_path: Path, content: Any) -> None:
    with pytest.raises(UserError, match=r"thing\.pt is not a fairseq checkpoint"):
        read_trained_model(save(tmp_path / "thing.pt", content))


# --- what differs ----------------------------------------------------------------------------------------------------


def difference(trained: TrainedModel, family: str, sides: tuple[str, ...] = ("encoder",), **options: Any) -> str:
    """What is said of a model of these options that is to start from ``trained``; empty where nothing is."""
    try:
        require_same_kind(trained, MODEL_REGISTRY[family], options_of(family, **options), sides)
    except UserError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("options", "before"),
    [
        ({"encoder_embed_dim": 32, "decoder_embed_dim": 32}, (16, 16)),
        ({"encoder_ffn_embed_dim": 48}, (24,)),
        ({"encoder_block_size": 1}, (2,)),
        ({"encoder_block_size": 0}, (2,)),
        ({"max_relative_positions": 0}, (2,)),
        ({"relative_position_terms": "key-value"}, ("key",)),
        ({"share_all_embeddings": True}, (False,)),
        ({"share_decoder_input_output_embed": True}, (False,)),
        ({"encoder_learned_pos": True}, (False,)),
        ({"no_scale_embedding": True}, (False,)),
        ({"encoder_attention_heads": 4, "decoder_layers": 4, "activation_fn": "gelu"}, (2, 3, "relu")),
    ],
    ids=str,
)
def test_every_difference_is_named(options: dict[str, Any], before: tuple[Any, ...]) -> None:
    said = difference(trained_model("sdt_transformer"), "sdt_transformer", **options, dropout=0.4)
    assert said.startswith("--growth-from run/last.pt: --")
    for (name, value), there in zip(options.items(), before, strict=True):
        assert f"--{name.replace('_', '-')} is {there} there and {value} here" in said
    assert said.count(" there and ") == len(options)


@pytest.mark.parametrize(
    "options",
    [
        {"encoder_layers": 8},
        {"dropout": 0.5, "attention_dropout": 0.5, "activation_dropout": 0.5},
        {"encoder_layerdrop": 0.1, "checkpoint_activations": True},
        {"max_source_positions": 2000},
        {"inter_similarity_weight": 1.0},
    ],
    ids=str,
)
def test_what_may_differ(options: dict[str, Any]) -> None:
    assert difference(trained_model("sdt_transformer"), "sdt_transformer", **options) == ""


def test_which_depths_may_differ() -> None:
    trained = trained_model("sdt_transformer")
    assert difference(trained, "sdt_transformer", ("decoder",), decoder_layers=5) == ""
    assert difference(trained, "sdt_transformer", ("encoder", "decoder"), decoder_layers=5, encoder_layers=6) == ""
    assert "--encoder-layers is 4 there and 6 here" in difference(
        trained, "sdt_transformer", ("decoder",), encoder_layers=6
    )


def test_connections_and_relative_positions_may_be_new() -> None:
    plain = trained_model("sdt_transformer", encoder_block_size=0, max_relative_positions=0)
    assert difference(plain, "sdt_transformer") == ""
    assert difference(plain, "sdt_transformer", relative_position_terms="key-value") == ""


def test_one_table_for_all_is_one_for_the_output_too(tmp_path: Path) -> None:
    """fairseq writes both options into its checkpoints where --share-all-embeddings is given."""
    found = read_trained_model(stock_file(tmp_path, share_all_embeddings=True))
    sizes = {name: value for name, value in STOCK.items() if name in FAMILIES["sdt_transformer"]}
    assert difference(found, "sdt_transformer", **sizes, share_all_embeddings=True) == ""
    assert "--share-all-embeddings is True there and False here" in difference(found, "sdt_transformer", **sizes)


def test_another_of_our_families_is_named() -> None:
    found = difference(trained_model("sdt_transformer"), "depthwise_lstm_transformer")
    assert found.startswith("--growth-from run/last.pt")
    assert "sdt_transformer" in found
    assert "depthwise_lstm_transformer" in found


def test_shapes_must_fit_and_nothing_may_be_left_over() -> None:
    values, deep = build_tiny().state_dict(), build_tiny(encoder_layers=4)
    own, sources = deep.state_dict(), Growth(deep, values, {"encoder": [0, 1, 2, 2]})
    require_same_shapes(trained_model("depthwise_lstm_transformer", values), own, sources)
    more = {**values, "encoder.layers.0.adapter.weight": torch.zeros(1)}
    with pytest.raises(UserError, match=r"run/last\.pt .*encoder\.layers\.0\.adapter\.weight"):
        require_same_shapes(trained_model("depthwise_lstm_transformer", more), own, sources)
    own["encoder.embedding.tokens.weight"] = torch.zeros(15, 16)
    with pytest.raises(UserError, match=r"run/last\.pt: encoder\.embedding\.tokens\.weight is 12x16 .* is 15x16"):
        require_same_shapes(trained_model("depthwise_lstm_transformer", values), own, sources)


# --- options ---------------------------------------------------------------------------------------------------------


def test_the_class_of_the_options_of_an_architecture() -> None:
    assert options_class("sdt_transformer_wmt_en_de_24l") is options_class("sdt_transformer")
    assert issubclass(options_class("depthwise_lstm_transformer"), EncoderDecoderConfig)
    assert options_class("transformer_iwslt_de_en") is None
