"""The multi-unit model: the penalty, what acts in training only."""

from __future__ import annotations

from typing import Any

import pytest
from second_reading_mute import read_penalty, read_projection
from tiny_models import SOURCE, TARGET, build_tiny

MUTE = "mute_transformer"
NOISE = {"encoder_units": 4, "unit_inputs": "identity,swap,mask,disorder"}


# --- the penalty -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("given", "weight"), [(None, 2.5e-4), (0.5, 0.5)])
def test_each_layer_offers_its_penalty(training: bool, given: float | None, weight: float) -> None:
    options = {"unit_sequential": True, "permutation_penalty": given}
    model = build_tiny(MUTE, **options).train(training)
    offered = model(SOURCE, None, TARGET)[1]["auxiliary_losses"]
    assert list(offered) == ["permutation_penalty_1", "permutation_penalty_2"]
    for layer, loss in zip(model.encoder.layers, offered.values(), strict=True):
        expected = read_penalty(read_projection(layer.order.raw.tolist()))
        assert loss.value.item() == pytest.approx(expected, rel=1e-5)
        assert loss.value.requires_grad
        assert (loss.weight, loss.option) == (weight, "--permutation-penalty")


@pytest.mark.parametrize("options", [{}, NOISE, {"unit_sequential": True, "permutation_penalty": 0.0}], ids=str)
def test_without_an_order_or_a_weight_there_is_none(options: dict[str, Any]) -> None:
    assert build_tiny(MUTE, **options).train()(SOURCE, None, TARGET)[1]["auxiliary_losses"] == {}


# --- training --------------------------------------------------------------------------------------------------------


def test_every_parameter_has_a_gradient_whether_noise_is_on_or_off() -> None:
    """PyTorch's data parallel wrapper would wait for one that has none."""
    for rate in (0.0, 0.5, 1.0):
        model = build_tiny(MUTE, unit_sequential=True, unit_noise_rate=rate, **NOISE)
        scores, extra = model.train()(SOURCE, None, TARGET)
        (scores.sum() + sum(loss.value for loss in extra["auxiliary_losses"].values())).backward()
        assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []
