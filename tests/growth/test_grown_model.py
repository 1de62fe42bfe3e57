"""The grown model against one that is put together by hand: first forward, names, sharing."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from growth_by_hand import assert_same_model, build, depthwise_by_hand, grow, scores, trained
from tiny_models import SOURCE, TARGET, VARIANTS
from torch import nn

#: Strategy, depth -> source layers; written by hand.
SOURCES: dict[str, list[int]] = {
    "top-most, +2": [0, 1, 2, 3, 2, 3],
    "top, +2": [0, 1, 2, 3, 3, 3],
    "top, +4": [0, 1, 2, 3, 3, 3, 3, 3],
}
INTERPOLATED: dict[str, list[int]] = {
    "interpolation, +2": [0, 1, 2, 2, 3, 3],
    "interpolation, doubled": [0, 0, 1, 1, 2, 2, 3, 3],
}

#: Block size -> for each of the tables above, the block that each block's norm comes from.
NORMS: dict[int, dict[str, list[int]]] = {
    1: {**SOURCES, **INTERPOLATED},
    2: {
        "top-most, +2": [0, 1, 1],
        "top, +2": [0, 1, 1],
        "top, +4": [0, 1, 1, 1],
    },
}


def assert_names_of_a_new_one(model: nn.Module, new: nn.Module) -> None:
    assert list(model.state_dict()) == list(new.state_dict())
    shapes = {name: value.shape for name, value in new.state_dict().items()}
    assert {name: value.shape for name, value in model.state_dict().items()} == shapes
    assert [name for name, _ in model.named_parameters()] == [name for name, _ in new.named_parameters()]


# --- sdt_transformer -------------------------------------------------------------------------------------------------


def sdt_by_hand(shallow: nn.Module, table: str, sources: list[int], block_size: int) -> nn.Module:
    """At growth: layers by the table; old rows and norms stay; a new row is 1/(n+1); norms follow."""
    deep = copy.deepcopy(shallow)
    deep.encoder.layers = nn.ModuleList(copy.deepcopy(shallow.encoder.layers[source]) for source in sources)
    if not block_size:
        return deep
    old, connection = shallow.encoder.connection, deep.encoder.connection
    blocks = len(sources) // block_size
    connection.norms = nn.ModuleList(copy.deepcopy(old.norms[block]) for block in NORMS[block_size][table])
    for row in range(len(old.rows), blocks + 1):
        connection.rows.append(nn.Parameter(torch.full((row + 1,), 1 / (row + 1))))
    return deep


@pytest.mark.parametrize(
    ("block_size", "table"),
    [(p, table) for p in (0, 1, 2) for table in (SOURCES if p == 2 else SOURCES | INTERPOLATED)],
)
def test_sdt(block_size: int, table: str) -> None:
    options = {"encoder_layers": 4, "encoder_block_size": block_size}
    model = trained("sdt_transformer", **options)
    sources = (SOURCES | INTERPOLATED)[table]
    expected = sdt_by_hand(model, table, sources, block_size)
    before = scores(model)
    grow(model, "sdt_transformer", {"encoder": sources}, **options)
    assert len(model.encoder.layers) == len(sources)
    assert_same_model(model, expected)
    assert not torch.equal(scores(model), before)
    assert_names_of_a_new_one(model, build("sdt_transformer", **(options | {"encoder_layers": len(sources)})))


def test_growing_twice_is_growing_twice_by_hand() -> None:
    options = {"encoder_layers": 1, "encoder_block_size": 1}
    model = trained("sdt_transformer", **options)
    expected = copy.deepcopy(model)
    for sources in ([0, 0], [0, 1, 1], [0, 1, 2, 1, 2]):
        old = len(expected.encoder.layers)
        shallow = copy.deepcopy(expected)
        for layer in sources[old:]:
            expected.encoder.layers.append(copy.deepcopy(shallow.encoder.layers[layer]))
            expected.encoder.connection.norms.append(copy.deepcopy(shallow.encoder.connection.norms[layer]))
            row = len(expected.encoder.connection.rows) + 1
            expected.encoder.connection.rows.append(nn.Parameter(torch.full((row,), 1 / row)))
        grow(model, "sdt_transformer", {"encoder": sources}, **options)
        assert_same_model(model, expected)


# --- depthwise_lstm_transformer --------------------------------------------------------------------------------------

every_variant = pytest.mark.parametrize(
    "options", [options for name, options in VARIANTS.items() if name != "3 and 2 layers"], ids=str
)


@every_variant
def test_depthwise_both(options: dict[str, Any]) -> None:
    model = trained("depthwise_lstm_transformer", **options)
    check_depthwise(model, {"encoder": [0, 0, 1, 1, 2, 2], "decoder": [0, 1, 2, 0, 1]}, options)


@pytest.mark.parametrize("name", ["default", "share none", "two cells"])
def test_one_layer_gets_fresh_norms(name: str) -> None:
    options = {**VARIANTS[name], "encoder_layers": 1, "decoder_layers": 1}
    model = trained("depthwise_lstm_transformer", **options)
    check_depthwise(model, {"encoder": [0, 0], "decoder": [0, 0, 0]}, options)


def check_depthwise(model: nn.Module, sources: dict[str, list[int]], options: dict[str, Any]) -> None:
    sharing, scope = options.get("depthwise_sharing", "gates"), options.get("depthwise_gate_scope", "stack")
    expected = depthwise_by_hand(model, sources, sharing, scope)
    grow(model, "depthwise_lstm_transformer", sources, **options)
    assert_same_model(model, expected)
    depths = {f"{side}_layers": len(table) for side, table in sources.items()}
    assert_names_of_a_new_one(model, build("depthwise_lstm_transformer", **(options | depths)))
    assert sharing_of(model) == sharing_of(expected)


def sharing_of(model: nn.Module) -> list[list[str]]:
    """The names of each parameter, by object and by memory, which must agree."""
    objects: dict[int, list[str]] = {}
    memory: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        objects.setdefault(id(parameter), []).append(name)
        memory.setdefault(parameter.data_ptr(), []).append(name)
    assert sorted(memory.values()) == sorted(objects.values())
    return sorted(objects.values())


# --- copies and what is tied -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["sdt_transformer", "depthwise_lstm_transformer"])
def test_a_copy_is_not_its_source(family: str) -> None:
    options = {"encoder_layers": 2, "encoder_block_size": 1, "depthwise_sharing": "none"}
    model = trained(family, **options)
    names = grow(model, family, {"encoder": [0, 1, 0, 1], "decoder": [0, 1, 2, 2]}, **options)
    for name, source in names.items():
        if source is None or name == source:
            continue
        before = {one: value.clone() for one, value in model.state_dict().items()}
        with torch.no_grad():
            model.get_parameter(name).add_(1.0)
        changed = {one for one, value in model.state_dict().items() if not torch.equal(value, before[one])}
        assert changed == {name}


@pytest.mark.parametrize(
    "tied", [{"share_all_embeddings": True}, {"share_decoder_input_output_embed": True}, {}], ids=str
)
@pytest.mark.parametrize("learned", [False, True])
def test_embeddings_stay_tied(tied: dict[str, bool], learned: bool) -> None:
    options = {**tied, "encoder_learned_pos": learned, "decoder_learned_pos": learned}
    options |= {"max_source_positions": 20, "max_target_positions": 20}
    model = trained("depthwise_lstm_transformer", **options)
    before = scores(model)
    tables = [model.encoder.embedding.tokens.weight, model.decoder.embedding.tokens.weight]
    tables.append(model.decoder.output_projection.weight)
    expected = depthwise_by_hand(model, {"encoder": [0, 1, 2, 1, 2]})
    grow(model, "depthwise_lstm_transformer", {"encoder": [0, 1, 2, 1, 2]}, **options)
    assert_same_model(model, expected)
    assert not torch.equal(scores(model), before)
    source, target = model.encoder.embedding.tokens.weight, model.decoder.embedding.tokens.weight
    assert (source is target) == ("share_all_embeddings" in tied)
    assert (model.decoder.output_projection.weight is target) == bool(tied)
    grown = [source, target, model.decoder.output_projection.weight]
    assert [one.data_ptr() for one in grown] == [one.data_ptr() for one in tables]


def test_what_stays_keeps_its_memory() -> None:
    """So that growing needs memory for the copies alone."""
    model = trained("sdt_transformer", encoder_layers=2, encoder_block_size=1)
    before = {name: parameter.data_ptr() for name, parameter in model.named_parameters()}
    grow(model, "sdt_transformer", {"encoder": [0, 1, 1]}, encoder_layers=2, encoder_block_size=1)
    after = {name: parameter.data_ptr() for name, parameter in model.named_parameters()}
    assert before.items() <= after.items()
    assert len(set(after.values())) == len(after)


def test_every_parameter_can_be_trained() -> None:
    options = {"encoder_layers": 2, "encoder_block_size": 1, "share_all_embeddings": True}
    model = trained("sdt_transformer", **options).train()
    grow(model, "sdt_transformer", {"encoder": [0, 1, 0, 1]}, **options)
    model(SOURCE, None, TARGET)[0].square().sum().backward()
    for name, parameter in model.named_parameters():
        assert isinstance(parameter, nn.Parameter)
        assert parameter.is_leaf
        assert parameter.requires_grad
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all()
