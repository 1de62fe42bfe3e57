"""The multi-unit model: the penalty, what acts in training only."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fairseq.models import FairseqEncoderDecoderModel
from second_reading_mute import read_penalty, read_projection
from tiny_models import PAD, SOURCE, TARGET, build_tiny
from torch import Tensor

MUTE = "mute_transformer"
NOISE = {"encoder_units": 4, "unit_inputs": "identity,swap,mask,disorder"}


# --- the penalty -----------------------------------------------------------------------------------------------------


def offered_losses(training: bool = True, **options: Any) -> dict[str, Any]:
    return build_tiny(MUTE, **options).train(training)(SOURCE, None, TARGET)[1]["auxiliary_losses"]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("given", "weight"), [(None, 2.5e-4), (0.5, 0.5)])
def test_each_layer_offers_its_penalty(training: bool, given: float | None, weight: float) -> None:
    options = {"unit_sequential": True, "permutation_penalty": given}
    offered, model = offered_losses(training, **options), build_tiny(MUTE, **options)
    assert list(offered) == ["permutation_penalty_1", "permutation_penalty_2"]
    for layer, loss in zip(model.encoder.layers, offered.values(), strict=True):
        expected = read_penalty(read_projection(layer.order.raw.tolist()))
        assert loss.value.item() == pytest.approx(expected, rel=1e-5)
        assert loss.value.requires_grad
        assert (loss.weight, loss.option) == (weight, "--permutation-penalty")


@pytest.mark.parametrize("options", [{}, NOISE, {"unit_sequential": True, "permutation_penalty": 0.0}], ids=str)
def test_without_an_order_or_a_weight_there_is_none(options: dict[str, Any]) -> None:
    assert offered_losses(**options) == {}


# --- training --------------------------------------------------------------------------------------------------------


def loss_and_gradients(model: FairseqEncoderDecoderModel, seed: int = 5) -> tuple[Tensor, dict[str, Tensor | None]]:
    """Of the translation and, where there are some, the penalties."""
    torch.manual_seed(seed)
    scores, extra = model.train()(SOURCE, None, TARGET)
    loss = -scores.float().log_softmax(-1)[TARGET.ne(PAD)][:, 5].mean()
    for auxiliary in extra["auxiliary_losses"].values():
        loss = loss + auxiliary.weight * auxiliary.value
    loss.backward()
    return loss.detach(), {name: one.grad for name, one in model.named_parameters()}


def test_every_parameter_has_a_gradient_whether_noise_is_on_or_off() -> None:
    """PyTorch's data parallel wrapper would wait for one that has none."""
    for rate in (0.0, 0.5, 1.0):
        model = build_tiny(MUTE, unit_sequential=True, unit_noise_rate=rate, **NOISE)
        _, found = loss_and_gradients(model)
        assert [name for name, gradient in found.items() if gradient is None] == []
