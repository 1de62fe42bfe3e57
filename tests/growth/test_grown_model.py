"""The grown model against one that is put together by hand: forward, names, sharing, new layers, what stays.

Copies in sdt_transformer are in test_growth_properties and test_live_growth.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from growth_by_hand import assert_same_model, build, depthwise_by_hand, grow, scores, trained
from tiny_models import VARIANTS
from torch import nn

from fairseq_compat import UserError
from fairseq_depthwise.growth.parameter_map import grow_model

SDT, DEPTHWISE = "sdt_transformer", "depthwise_lstm_transformer"


@pytest.mark.parametrize(
    "options",
    [
        *(options for name, options in VARIANTS.items() if name != "3 and 2 layers"),
        # A copy of the only layer takes fresh norms.
        *({**VARIANTS[name], "encoder_layers": 1, "decoder_layers": 1} for name in ("default", "two cells")),
    ],
    ids=str,
)
def test_depthwise(options: dict[str, Any]) -> None:
    model = trained(DEPTHWISE, **options)
    one = "encoder_layers" in options
    sources = {"encoder": [0, 0] if one else [0, 0, 1, 1, 2, 2], "decoder": [0, 0, 0] if one else [0, 1, 2, 0, 1]}
    sharing, scope = options.get("depthwise_sharing", "gates"), options.get("depthwise_gate_scope", "stack")
    expected = depthwise_by_hand(model, sources, sharing, scope)
    grow(model, DEPTHWISE, sources, **options)
    assert_same_model(model, expected)
    depths = {f"{side}_layers": len(table) for side, table in sources.items()}
    assert_names_of_a_new_one(model, build(DEPTHWISE, **(options | depths)))
    assert sharing_of(model) == sharing_of(expected)


def assert_names_of_a_new_one(model: nn.Module, new: nn.Module) -> None:
    assert list(model.state_dict()) == list(new.state_dict())
    shapes = {name: value.shape for name, value in new.state_dict().items()}
    assert {name: value.shape for name, value in model.state_dict().items()} == shapes
    assert [name for name, _ in model.named_parameters()] == [name for name, _ in new.named_parameters()]


def sharing_of(model: nn.Module) -> list[list[str]]:
    """The names of each parameter, by object and by memory, which must agree."""
    objects: dict[int, list[str]] = {}
    memory: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        objects.setdefault(id(parameter), []).append(name)
        memory.setdefault(parameter.data_ptr(), []).append(name)
    assert sorted(memory.values()) == sorted(objects.values())
    return sorted(objects.values())


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("tied", ["share_all_embeddings", "share_decoder_input_output_embed", None])
def test_embeddings_stay_tied_and_what_stays_keeps_its_memory(tied: str | None, learned: bool) -> None:
    options = {"encoder_learned_pos": learned, "max_source_positions": 20, **({tied: True} if tied else {})}
    model = trained(DEPTHWISE, **options)
    before = {name: one.data_ptr() for name, one in model.named_parameters(remove_duplicate=False)}
    sharing = [names for names in sharing_of(model) if "embedding" in names[0]]
    grow(model, DEPTHWISE, {"encoder": [0, 1, 2, 1, 2]}, **options)
    assert [names for names in sharing_of(model) if "embedding" in names[0]] == sharing
    after = {name: one.data_ptr() for name, one in model.named_parameters(remove_duplicate=False)}
    assert before.items() <= after.items()


# --- layers that start anew ------------------------------------------------------------------------------------------

SHALLOW = {"encoder_layers": 2, "decoder_layers": 2, "encoder_block_size": 0}
DEEP = {"encoder_layers": 4, "decoder_layers": 3, "encoder_block_size": 0}


@pytest.mark.parametrize("family", [SDT, "mute_transformer", DEPTHWISE])
def test_new_layers_are_those_of_a_new_model_and_the_rest_stays(family: str) -> None:
    """Drawn from the seed alone; the process's own generator stays where it is."""
    options = {"depthwise_sharing": "none", "depthwise_forget_bias": 1.5}
    sources: dict[str, list[int | None]] = {"encoder": [0, None, 1, None], "decoder": [0, 1, None]}
    model = trained(family, **SHALLOW, **options)
    old = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.random.get_rng_state()
    grow_model(model, lambda: build(family, **DEEP, **options), sources, seed=5)
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.manual_seed(5)
    new = build(family, **DEEP, **options).state_dict()
    found = model.state_dict()
    assert found.keys() == new.keys()
    for name, value in found.items():
        side, kind, place = (*name.split("."), "")[:3]
        source = sources[side][int(place)] if kind == "layers" else place
        expected = new if source is None else old
        at = name if source is None else name.replace(f"{kind}.{place}.", f"{kind}.{source}.", 1)
        assert torch.equal(value, expected[at]), name


@pytest.mark.parametrize("source", [1, None], ids=["copies", "anew"])
@pytest.mark.parametrize("options", [{}, {"unit_sharing": "ffn"}], ids=str)
def test_units_that_start_at_zero_change_nothing(options: dict[str, Any], source: int | None) -> None:
    """Those of the other residual family are in test_growth_properties."""
    model = trained("mute_transformer", **SHALLOW, **options)
    before = scores(model)
    sources = {"encoder": [0, 1, source, source], "decoder": [0, 1, source]}
    grow_model(model, lambda: build("mute_transformer", **DEEP, **options), sources, init="zero")
    torch.testing.assert_close(scores(model), before, rtol=1e-5, atol=1e-5)
    assert not model.encoder.layers[3].self_attention.output_projection.weight.any()
    assert model.encoder.layers[1].feed_forward.second.weight.all()  # an old layer


def test_a_depthwise_layer_has_no_zero() -> None:
    with pytest.raises(UserError, match=r"--growth-init zero .* residual branches"):
        grow_model(
            trained(DEPTHWISE), lambda: build(DEPTHWISE, encoder_layers=4), {"encoder": [0, 1, 2, 2]}, init="zero"
        )
