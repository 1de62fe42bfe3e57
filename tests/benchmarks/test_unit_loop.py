"""The loop over units that the benchmark compares with computes what the batched layer computes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import unit_loop  # noqa: F401  # registers mute_transformer_loop
from fairseq.models import MODEL_REGISTRY
from tiny_models import FAMILIES, SOURCE, TARGET, task_of
from unit_loop import LoopEncoderLayer

from fairseq_depthwise.models.mute.layers import MultiUnitEncoderLayer

NOISE = {"unit_inputs": "identity,swap,mask,disorder", "unit_noise_rate": 1.0, "encoder_units": 4}


@pytest.mark.parametrize(
    "options",
    [
        {}, {"encoder_units": 1}, {"encoder_units": 6, "relative_position_terms": "key"}, NOISE,
        {**NOISE, "unit_sequential": True}, {**NOISE, "unit_sharing": "attention"}, {"unit_sharing": "attention"},
        {**NOISE, "unit_sharing": "ffn"}, {"max_relative_positions": 0},
    ],
    ids=str,
)  # fmt: skip
def test_same_outputs_and_gradients(options: dict[str, object]) -> None:
    results = []
    for arch in ("mute_transformer", "mute_transformer_loop"):
        torch.manual_seed(1)
        given = {**FAMILIES["mute_transformer"], "dropout": 0.0, "activation_dropout": 0.0, **options}
        model = MODEL_REGISTRY["mute_transformer"].build_model(SimpleNamespace(**given), task_of())
        if arch == "mute_transformer_loop":
            for index, layer in enumerate(model.encoder.layers):
                model.encoder.layers[index] = LoopEncoderLayer(layer)
        else:
            assert isinstance(model.encoder.layers[0], MultiUnitEncoderLayer)
        model.double().train()
        torch.manual_seed(2)  # the noise
        output, _ = model(SOURCE, None, TARGET)
        output.square().mean().backward()
        table = model.encoder.embedding.tokens.weight.grad
        gradients = [layer.unit_weights.grad for layer in model.encoder.layers]
        results.append([output, table, *gradients])
    for batched, looped in zip(*results, strict=True):
        torch.testing.assert_close(batched, looped, rtol=1e-9, atol=1e-12)


def test_the_architecture_has_the_loop() -> None:
    model = MODEL_REGISTRY["mute_transformer_loop"].build_model(
        SimpleNamespace(**FAMILIES["mute_transformer"]), task_of()
    )
    assert all(isinstance(layer, LoopEncoderLayer) for layer in model.encoder.layers)
