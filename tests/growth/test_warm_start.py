"""Starting from a trained model: the same computation where nothing is new, and what is new is said."""

from __future__ import annotations

import copy
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.models import FairseqEncoderDecoderModel
from growth_checkpoints import STOCK, checkpoint_of, save, stock_model
from tiny_models import FAMILIES, PAD, SOURCE, TARGET, build_tiny
from torch import Tensor, nn

from fairseq_compat import UserError
from fairseq_depthwise.growth.trained_model import options_class
from fairseq_depthwise.growth.warm_start import start_from

#: What fairseq's tiny transformer is among ours: its sizes, no connections, no relative positions.
PLAIN = {
    **{name: value for name, value in STOCK.items() if name in FAMILIES["sdt_transformer"]},
    "encoder_block_size": 0,
    "max_relative_positions": 0,
}

the_stock_encoders_call = pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask:UserWarning")


def started(
    path: str, family: str, sides: tuple[str, ...] = ("encoder",), strategy: str = "top-most", **options: Any
) -> FairseqEncoderDecoderModel:
    """A new model of the family, started from the file."""
    model = build_tiny(family, **options)
    config = options_class(family).complete(SimpleNamespace(**FAMILIES[family] | options))
    block = getattr(config, "encoder_block_size", 0) if "encoder" in sides else 0
    start_from(path, model, config, sides=sides, strategy=strategy, block_size=block)
    return model


def ours(path: Path, family: str, **options: Any) -> tuple[str, FairseqEncoderDecoderModel]:
    """A file of a model whose numbers a new one has not got."""
    model = build_tiny(family, **options)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    given = {**FAMILIES[family], **options, "_name": family}
    return save(path / "ours.pt", checkpoint_of(model.state_dict(), given, updates=4321)), model


def stock(path: Path, **options: Any) -> tuple[str, FairseqEncoderDecoderModel]:
    model, args = stock_model(**options)
    return save(path / "stock.pt", checkpoint_of(model.state_dict(), args, updates=1234)), model


def scores(model: nn.Module) -> Tensor:
    with torch.no_grad():
        return model(SOURCE, SOURCE.ne(PAD).sum(dim=1), TARGET)[0]


def assert_close_to_stock(found: nn.Module, stock: nn.Module) -> None:
    """In float64, as far as the stock decoder's softmax allows, which is in float32; what follows a sentence's end may
    differ, which nobody reads."""
    real = TARGET.ne(PAD)
    torch.testing.assert_close(scores(found)[real], scores(stock)[real], rtol=1e-6, atol=1e-6)


def is_new(name: str, new: tuple[str, ...]) -> bool:
    return any(part in name for part in new)


# --- from fairseq's transformer --------------------------------------------------------------------------------------


@the_stock_encoders_call
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"share_all_embeddings": True},
        {"activation_fn": "gelu", "encoder_learned_pos": True, "decoder_learned_pos": True},
        {"no_token_positional_embeddings": True, "no_scale_embedding": True},
    ],
    ids=str,
)
def test_a_stock_model_goes_on_computing_what_it_computed(tmp_path: Path, options: dict[str, Any]) -> None:
    path, model = stock(tmp_path, **options)
    found = started(path, "sdt_transformer", **PLAIN, **options)
    assert scores(found).dtype == torch.float32
    assert_close_to_stock(found.double(), model.double())


@the_stock_encoders_call
@pytest.mark.parametrize(("strategy", "sources"), [("top-most", [0, 1, 0, 1]), ("interpolation", [0, 0, 1, 1])])
def test_a_deeper_stock_model(tmp_path: Path, strategy: str, sources: list[int]) -> None:
    """fairseq's own model with its layers copied by hand."""
    path, model = stock(tmp_path)
    deep = copy.deepcopy(model)
    deep.encoder.layers = nn.ModuleList(copy.deepcopy(model.encoder.layers[source]) for source in sources)
    deep.decoder.layers = nn.ModuleList(copy.deepcopy(model.decoder.layers[source]) for source in sources)
    options = {**PLAIN, "encoder_layers": 4, "decoder_layers": 4}
    found = started(path, "sdt_transformer", ("encoder", "decoder"), strategy, **options)
    assert_close_to_stock(found.double(), deep.double())


def test_what_stock_has_not_is_new_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, model = stock(tmp_path)
    options = {**PLAIN, "encoder_layers": 4, "encoder_block_size": 2, "max_relative_positions": 3}
    fresh = build_tiny("sdt_transformer", **options).state_dict()
    with caplog.at_level(logging.INFO):
        found = started(path, "sdt_transformer", **options).state_dict()
    started_from, new = [record.getMessage() for record in caplog.records if "warm_start" in record.name]
    assert f"{path}, 1234 updates, encoder of 2 layers" in started_from
    self_attentions = [f"encoder.layers.{n}" for n in range(4)] + [f"decoder.layers.{n}" for n in range(2)]
    names = [f"{layer}.self_attention.relative_positions" for layer in self_attentions]
    names += [f"encoder.connection.norms.{block}" for block in range(2)]
    names += [f"encoder.connection.rows.{row}" for row in range(3)]
    assert new.endswith(": " + ", ".join(sorted(names)))
    parts = ("relative_positions", ".connection.norms.", ".connection.rows.")
    for name, value in found.items():
        assert torch.equal(value, fresh[name]) == is_new(name, parts), name
    assert torch.equal(found["encoder.layers.3.feed_forward.first.bias"], model.encoder.layers[1].fc1.bias)


# --- from our own ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_depth_is_the_same_model(tmp_path: Path, family: str, caplog: pytest.LogCaptureFixture) -> None:
    path, model = ours(tmp_path, family)
    with caplog.at_level(logging.INFO):
        found = started(path, family)
    assert torch.equal(scores(found), scores(model))
    (message,) = [record.getMessage() for record in caplog.records if "warm_start" in record.name]
    assert f"{path}, 4321 updates, encoder of {len(model.encoder.layers)} layers" in message


@pytest.mark.parametrize("sharing", ["gates", "none", "all"])
def test_a_deeper_depthwise_model(tmp_path: Path, sharing: str) -> None:
    path, model = ours(tmp_path, "depthwise_lstm_transformer", depthwise_sharing=sharing)
    deep = copy.deepcopy(model)
    deep.encoder.layers = nn.ModuleList(copy.deepcopy(model.encoder.layers[source]) for source in (0, 1, 2, 0, 1, 2))
    deep.encoder.layers[3].input_norm = copy.deepcopy(model.encoder.layers[1].input_norm)
    found = started(path, "depthwise_lstm_transformer", encoder_layers=6, depthwise_sharing=sharing)
    assert torch.equal(scores(found), scores(deep))
    gates = {layer.cell.gates.projection.weight.data_ptr() for layer in found.encoder.layers}
    assert len(gates) == (6 if sharing == "none" else 1)


def test_a_half_precision_file(tmp_path: Path) -> None:
    model = build_tiny("sdt_transformer").half()
    given = {**FAMILIES["sdt_transformer"], "_name": "sdt_transformer"}
    path = save(tmp_path / "half.pt", checkpoint_of(model.state_dict(), given))
    found = started(path, "sdt_transformer")
    assert all(value.dtype == torch.float32 for value in found.state_dict().values())
    assert all(torch.equal(value, model.state_dict()[name].float()) for name, value in found.state_dict().items())


def test_the_file_is_not_changed_by_training(tmp_path: Path) -> None:
    path, _ = ours(tmp_path, "depthwise_lstm_transformer")
    before = Path(path).read_bytes()
    found = started(path, "depthwise_lstm_transformer", encoder_layers=4)
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.zero_()
    assert Path(path).read_bytes() == before


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"encoder_layers": 2}, "4 encoder layers .* --growth-stages 2"),
        ({"encoder_layers": 10}, "4 layers"),
        ({"encoder_layers": 6, "strategy": "interpolation"}, "interpolation .* blocks of 2 layers"),
        ({"decoder_layers": 4}, "--decoder-layers is 3 there and 4 here"),
        (
            {"encoder_attention_heads": 4, "activation_fn": "gelu"},
            "--encoder-attention-heads is 2 there and 4 here; --activation-fn is relu there and gelu here",
        ),
    ],
    ids=str,
)
def test_a_model_that_cannot_start_from_it(tmp_path: Path, options: dict[str, Any], named: str) -> None:
    path, _ = ours(tmp_path, "sdt_transformer")
    with pytest.raises(UserError, match=f"--growth-from {path}.*{named}"):
        started(path, "sdt_transformer", **options)


def test_another_family(tmp_path: Path) -> None:
    for path in (ours(tmp_path, "sdt_transformer")[0], stock(tmp_path)[0]):
        with pytest.raises(UserError, match="one family"):
            started(path, "depthwise_lstm_transformer")


def test_a_refused_start_changes_nothing(tmp_path: Path) -> None:
    path, model = ours(tmp_path, "sdt_transformer")
    found = build_tiny("sdt_transformer")
    before = scores(found)
    config = options_class("sdt_transformer").complete(SimpleNamespace(**FAMILIES["sdt_transformer"]))
    for changed, named in (
        ({"encoder.layers.0.adapter": torch.zeros(1)}, r"encoder\.layers\.0\.adapter"),
        ({"encoder.embedding.tokens.weight": torch.zeros(20, 16)}, r"encoder\.embedding\.tokens\.weight is 20x16"),
    ):
        values = model.state_dict() | changed
        save(Path(path), checkpoint_of(values, {**FAMILIES["sdt_transformer"], "_name": "sdt_transformer"}))
        with pytest.raises(UserError, match=f"--growth-from {path}.* {named}"):
            start_from(path, found, config, sides=("encoder",), strategy="top", block_size=2)
        assert torch.equal(scores(found), before)
