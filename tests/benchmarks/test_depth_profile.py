"""What is measured over depth."""

from __future__ import annotations

import depth_profile
import pytest
import torch
from tiny_models import batch_of, build_tiny


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_gates_gradients_and_noise_by_layer(dropout: float) -> None:
    model = build_tiny(dropout=dropout, depthwise_forget_bias=2.0, depthwise_gate_gain=1e-6)
    for name, parameter in model.named_parameters():  # the tiny models' norms are shaken
        if name.endswith("gates.norm_weight"):
            torch.nn.init.zeros_(parameter)
        if name.endswith("gates.norm_bias"):
            torch.nn.init.constant_(parameter, 2.0)
    found = depth_profile.measure(model, [batch_of(), batch_of()])
    for side in depth_profile.SIDES:
        assert found["forget"][side] == pytest.approx([torch.sigmoid(torch.tensor(2.0)).item()] * 3, abs=1e-4)
        assert found["gradient"][side][-1] == 1
        assert min(found["gradient"][side]) > 0
        assert (max(found["noise"][side]) == 0) == (dropout == 0)
