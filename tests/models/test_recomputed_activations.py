"""``--checkpoint-activations`` in the precisions that large models train in: the same gradients, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny_models import FAMILIES, PAD, SOURCE, TARGET, build_tiny
from torch import Tensor

DEPTHWISE, SDT, MUTE = FAMILIES
DROPOUT = {"dropout": 0.3, "attention_dropout": 0.2, "activation_dropout": 0.1}
LAYERDROP = {"encoder_layerdrop": 0.5, "decoder_layerdrop": 0.5}
NOISE = {"encoder_units": 4, "unit_inputs": "identity,swap,mask,disorder", "unit_noise_rate": 1.0}

CASES: list[tuple[str, dict[str, Any]]] = [
    *((family, {}) for family in FAMILIES),
    (DEPTHWISE, {"decoder_merge": "two-cells", "depthwise_sharing": "all", **LAYERDROP}),
    (DEPTHWISE, {"depthwise_cell": "rnn", "decoder_merge": "concat"}),
    (DEPTHWISE, {"max_relative_positions": 2, "relative_position_terms": "key-value", "log_gates": True}),
    *((SDT, {"encoder_block_size": size, "inter_similarity_weight": 0.5}) for size in (0, 1, 4)),
    (SDT, {"encoder_block_size": 1, "inter_similarity_weight": 0.5, **LAYERDROP}),
    *(
        (
            SDT,
            {"connection_unit": "sub-layer", "encoder_block_size": 0, **LAYERDROP}
            | {f"{side}_connection": name for side in ("encoder", "decoder")},
        )
        for name in ("average", "attention", "hyper")
    ),
    (MUTE, NOISE | {"unit_sharing": "ffn"}),
    (MUTE, NOISE | {"unit_sharing": "attention", "unit_sequential": True, **LAYERDROP}),
]


def loss_and_gradients(
    family: str, way: torch.dtype | str, options: dict[str, Any]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return those of one batch with the model's own losses; ``way`` is its type, or autocast to bfloat16."""
    model = build_tiny(family, **(DROPOUT | options)).train()
    if isinstance(way, torch.dtype):
        model = model.to(way)
    torch.manual_seed(5)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=way == "autocast"):
        scores, extra = model(SOURCE, None, TARGET)
        loss = -scores.float().log_softmax(-1)[TARGET.ne(PAD)][:, 5].mean()
        for auxiliary in extra.get("auxiliary_losses", {}).values():
            loss = loss + auxiliary.weight * auxiliary.value.float()
    loss.backward()
    return loss.detach(), {name: one.grad for name, one in model.named_parameters() if one.grad is not None}


@pytest.mark.parametrize("way", [torch.float32, torch.bfloat16, "autocast"], ids=str)
@pytest.mark.parametrize(("family", "options"), CASES, ids=str)
def test_gradients_are_the_same(family: str, options: dict[str, Any], way: torch.dtype | str) -> None:
    loss, plain = loss_and_gradients(family, way, options)
    loss_again, recomputed = loss_and_gradients(family, way, {**options, "checkpoint_activations": True})
    assert torch.equal(loss, loss_again)
    assert plain.keys() == recomputed.keys()
    for name, gradient in plain.items():
        assert torch.equal(gradient, recomputed[name]), name


@pytest.mark.parametrize("family", FAMILIES)
def test_layers_are_computed_a_second_time_in_the_backward_pass(family: str) -> None:
    """Else the comparison above would compare a model with itself."""
    for recompute, times in ((False, 1), (True, 2)):
        model = build_tiny(family, checkpoint_activations=recompute).train()
        layers = [*model.encoder.layers, *model.decoder.layers]
        begun: list[object] = []
        for layer in layers:
            layer.register_forward_pre_hook(lambda layer, _, begun=begun: begun.append(layer))
        model(SOURCE, None, TARGET)[0].float().sum().backward()
        assert len(begun) == times * len(layers)
