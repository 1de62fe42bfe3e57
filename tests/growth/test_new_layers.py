"""Layers that start anew or pass on what they read: ``--growth-strategy random``, ``--growth-init``."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from growth_by_hand import build, scores, trained
from tiny_models import SOURCE, TARGET
from torch import nn

from fairseq_compat import UserError
from fairseq_depthwise.growth.grown_model import grow_model

SHALLOW = {"encoder_layers": 2, "decoder_layers": 2, "encoder_block_size": 0}
DEEP = {"encoder_layers": 4, "decoder_layers": 3, "encoder_block_size": 0}


def grown(
    family: str, sources: dict[str, list[int | None]], init: str = "copy", seed: int = 1, **options: Any
) -> tuple[nn.Module, nn.Module]:
    """A trained model, and the same one grown."""
    model = trained(family, **(SHALLOW | options))
    depths = {f"{side}_layers": len(layers) for side, layers in sources.items()}
    deep = trained(family, **(SHALLOW | options))
    grow_model(deep, lambda: build(family, **(SHALLOW | options | depths)), sources, seed, init=init)
    return model, deep


# --- anew ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["sdt_transformer", "mute_transformer", "depthwise_lstm_transformer"])
def test_new_layers_are_those_of_a_new_model_and_the_rest_stays(family: str) -> None:
    sources: dict[str, list[int | None]] = {"encoder": [0, None, 1, None], "decoder": [0, 1, None]}
    model, deep = grown(family, sources, seed=5, depthwise_sharing="none", depthwise_forget_bias=1.5)
    old, found = model.state_dict(), deep.state_dict()
    torch.manual_seed(5)
    new = build(family, **DEEP, depthwise_sharing="none", depthwise_forget_bias=1.5).state_dict()
    assert found.keys() == new.keys()
    for name, value in found.items():
        side, kind, place = (*name.split("."), "")[:3]
        source = sources[side][int(place)] if kind == "layers" else place
        expected = new if source is None else old
        at = name if source is None else name.replace(f"{kind}.{place}.", f"{kind}.{source}.", 1)
        assert torch.equal(value, expected[at]), name


def test_new_layers_share_the_gates_that_there_are() -> None:
    model, deep = grown("depthwise_lstm_transformer", {"encoder": [0, 1, None]})
    gates = {layer.cell.gates for layer in deep.encoder.layers}
    assert len(gates) == 1
    assert torch.equal(gates.pop().projection.weight, model.encoder.layers[0].cell.gates.projection.weight)


def test_drawing_leaves_the_generator_and_depends_on_the_seed_alone() -> None:
    sources: dict[str, list[int | None]] = {"encoder": [0, 1, None]}
    weights = []
    for seed, noise in ((1, 3), (1, 4), (2, 3)):
        model = trained("sdt_transformer", **SHALLOW)
        torch.manual_seed(noise)
        before = torch.random.get_rng_state()
        options = {**SHALLOW, "encoder_layers": 3}
        grow_model(model, lambda options=options: build("sdt_transformer", **options), sources, seed)
        assert torch.equal(torch.random.get_rng_state(), before)
        weights.append(model.encoder.layers[2].feed_forward.first.weight)
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


# --- at zero ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("sdt_transformer", {}),
        ("mute_transformer", {}),
        ("mute_transformer", {"unit_sharing": "ffn"}),
    ],
)
@pytest.mark.parametrize("source", [1, None], ids=["copies", "anew"])
def test_layers_that_start_at_zero_change_nothing(family: str, options: dict[str, Any], source: int | None) -> None:
    sources = {"encoder": [0, 1, source, source], "decoder": [0, 1, source]}
    model, deep = grown(family, sources, "zero", **options)
    torch.testing.assert_close(scores(deep), scores(model), rtol=1e-5, atol=1e-5)
    for layer in (deep.encoder.layers[3], deep.decoder.layers[2]):
        assert not layer.self_attention.output_projection.weight.any()
        first = layer.feed_forward.first.weight
        stack = model.encoder if layer in deep.encoder.layers else model.decoder
        assert torch.equal(first, stack.layers[1].feed_forward.first.weight) == (source is not None)
    assert deep.encoder.layers[1].feed_forward.second.weight.all()  # an old layer


def test_all_that_is_at_zero_learns() -> None:
    """The last linear layers at once, and what is below them from the second update on."""
    _, deep = grown("sdt_transformer", {"encoder": [0, 1, 1]}, "zero")
    layer = deep.encoder.layers[2]
    before = {name: value.clone() for name, value in layer.named_parameters()}
    for _ in range(2):
        deep.zero_grad()
        deep(SOURCE, None, TARGET)[0].square().sum().backward()
        with torch.no_grad():
            for parameter in deep.parameters():
                parameter -= 0.01 * parameter.grad
    still = {name for name, value in layer.named_parameters() if torch.equal(value, before[name])}
    assert still <= {"self_attention.key_projection.bias"}  # which no softmax sees


def test_a_depthwise_layer_has_no_zero() -> None:
    with pytest.raises(UserError, match=r"--growth-init zero .* residual branches"):
        grown("depthwise_lstm_transformer", {"encoder": [0, 1, 1]}, "zero")
