"""Starting from a trained model: the same computation where nothing is new, what is new is said, what differs too."""

from __future__ import annotations

import copy
import logging
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.models import MODEL_REGISTRY, FairseqEncoderDecoderModel
from growth_by_hand import trained
from growth_checkpoints import STOCK, checkpoint_of, save, stock_file, stock_model
from tiny_models import FAMILIES, PAD, SOURCE, TARGET, build_tiny
from torch import Tensor, nn

from fairseq_compat import UserError
from fairseq_compat.provenance import options_class
from fairseq_depthwise.checkpoints.checkpoint import Checkpoint
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
    start_from(Checkpoint.open(path, "--growth-from"), model, config, sides=sides, strategy=strategy)
    return model


def ours(folder: Path, family: str, **options: Any) -> tuple[str, FairseqEncoderDecoderModel]:
    """A file of a model whose numbers a new one has not got."""
    model = trained(family, **options)
    given = {**FAMILIES[family], **options, "_name": family}
    return save(folder / "ours.pt", checkpoint_of(model.state_dict(), given, updates=4321)), model


def scores(model: nn.Module) -> Tensor:
    with torch.no_grad():
        return model(SOURCE, SOURCE.ne(PAD).sum(dim=1), TARGET)[0]


def messages_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "warm_start" in record.name]


@pytest.mark.parametrize("old", [False, True], ids=["cfg", "args"])
@pytest.mark.parametrize("arch", [*FAMILIES, "sdt_transformer_wmt_en_de_24l"])
def test_a_family_and_its_presets_are_read(tmp_path: Path, arch: str, old: bool) -> None:
    family = arch.partition("_wmt")[0]
    values = build_tiny(family, encoder_layers=2).state_dict()
    given = {**FAMILIES[family], "encoder_layers": 2, "dropout": None}
    state = checkpoint_of(values, {**given, "_name": arch})
    if old:
        state |= {"cfg": None, "args": Namespace(**given, arch=arch, data="somewhere")}
    found = Checkpoint.open(save(tmp_path / "ours.pt", state)).converted()
    assert found.family is MODEL_REGISTRY[family]
    expected = options_class(family).complete(SimpleNamespace(**(FAMILIES[family] | {"encoder_layers": 2})))
    assert {**vars(found.config), "_name": None} == {**vars(expected), "_name": None}
    assert (found.depth("encoder"), found.depth("decoder"), found.updates, found.remarks) == (2, 3, 7, ())
    assert found.parameters.keys() == values.keys()
    assert all(torch.equal(found.parameters[name], value) for name, value in values.items())


@the_stock_encoders_call
@pytest.mark.parametrize(
    ("options", "strategy", "sources"),
    [
        ({}, "top-most", [0, 1]),
        ({"share_all_embeddings": True}, "top-most", [0, 1, 0, 1]),
        ({"activation_fn": "gelu", "encoder_learned_pos": True, "decoder_learned_pos": True}, "top-most", [0, 1]),
        ({"no_token_positional_embeddings": True, "no_scale_embedding": True}, "interpolation", [0, 0, 1, 1]),
    ],
    ids=str,
)
def test_a_stock_model_goes_on_computing_what_it_computed(
    tmp_path: Path, options: dict[str, Any], strategy: str, sources: list[int]
) -> None:
    """fairseq's own model with its layers copied by hand; in float64, as far as its decoder's softmax allows."""
    model, args = stock_model(**options)
    path = save(tmp_path / "stock.pt", checkpoint_of(model.state_dict(), args))
    for side in (model.encoder, model.decoder):
        side.layers = nn.ModuleList(copy.deepcopy(side.layers[source]) for source in sources)
    depths = {"encoder_layers": len(sources), "decoder_layers": len(sources)}
    found = started(path, "sdt_transformer", ("encoder", "decoder"), strategy, **(PLAIN | options | depths))
    assert scores(found).dtype == torch.float32
    real = TARGET.ne(PAD)
    torch.testing.assert_close(scores(found.double())[real], scores(model.double())[real], rtol=1e-6, atol=1e-6)


def test_what_stock_has_not_is_new_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = {**PLAIN, "encoder_layers": 4, "encoder_block_size": 2, "max_relative_positions": 3}
    fresh = build_tiny("sdt_transformer", **options).state_dict()
    path = stock_file(tmp_path)
    with caplog.at_level(logging.INFO):
        found = started(path, "sdt_transformer", **options).state_dict()
    started_from, new = messages_of(caplog)
    assert f"{path}, 7 updates, encoder of 2 layers" in started_from
    parts = ("relative_positions", ".connection.norms.", ".connection.rows.")
    names = sorted(name for name in found if any(part in name for part in parts))
    assert new.endswith(": " + ", ".join(names))
    for name, value in found.items():
        assert torch.equal(value, fresh[name]) == (name in names), name


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_depth_is_the_same_model(tmp_path: Path, family: str, caplog: pytest.LogCaptureFixture) -> None:
    path, model = ours(tmp_path, family)
    with caplog.at_level(logging.INFO):
        found = started(path, family)
    assert torch.equal(scores(found), scores(model))
    (message,) = messages_of(caplog)
    assert f"{path}, 4321 updates, encoder of {len(model.encoder.layers)} layers" in message


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"encoder_layers": 2}, "4 layers cannot be grown to 2"),
        ({"encoder_layers": 6, "strategy": "interpolation"}, "interpolation .* blocks of 2 layers"),
        ({"decoder_layers": 4}, "--decoder-layers is 3 there and 4 here"),
        ({"encoder_block_size": 1}, "--encoder-block-size is 2 there and 1 here"),
        ({"share_all_embeddings": True}, "--share-all-embeddings is False there and True here"),
        (
            {"encoder_attention_heads": 4, "activation_fn": "gelu", "dropout": 0.4},
            "--encoder-attention-heads is 2 there and 4 here; --activation-fn is relu there and gelu here; a model",
        ),
    ],
    ids=str,
)
def test_a_model_that_cannot_start_from_it(tmp_path: Path, options: dict[str, Any], named: str) -> None:
    path, _ = ours(tmp_path, "sdt_transformer")
    with pytest.raises(UserError, match=f"--growth-from {path}: .*{named}"):
        started(path, "sdt_transformer", **options)


def test_another_family(tmp_path: Path) -> None:
    for path in (ours(tmp_path, "sdt_transformer")[0], stock_file(tmp_path)):
        with pytest.raises(UserError, match="one family"):
            started(path, "depthwise_lstm_transformer")
