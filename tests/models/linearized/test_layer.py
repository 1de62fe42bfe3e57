"""The layer that stands for a trained one: first values, observers, checkpoints; the rest is tested with the model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fairseq_depthwise.models.depthwise_lstm.cell import DepthwiseState
from fairseq_depthwise.models.linearized.layer import LinearizedLayer

WIDTH = 3


class Trained(nn.Module):
    """A layer that is far from linear."""

    def forward(self, state: Tensor) -> Tensor:
        return state.exp()

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        state_dict[name] = torch.ones(())


@pytest.mark.parametrize(("which", "pairs"), [("pair", True), ("output", True), ("pair", False)])
def test_it_starts_as_the_identity(which: str, pairs: bool) -> None:
    layer = LinearizedLayer(Trained(), width=2 * WIDTH if pairs and which == "pair" else WIDTH, which=which)
    below: Any = DepthwiseState(*torch.randn(2, 2, 4, WIDTH)) if pairs else torch.randn(2, 4, WIDTH)
    torch.testing.assert_close(layer(below), below, rtol=0, atol=0)


def test_old_checkpoints_are_renamed_by_the_trained_layer() -> None:
    state: dict[str, Tensor] = {}
    LinearizedLayer(Trained(), width=WIDTH).upgrade_state_dict_named(state, "encoder.layers.0")
    LinearizedLayer(nn.Identity(), width=1).upgrade_state_dict_named(state, "other")
    assert list(state) == ["encoder.layers.0.intact"]
