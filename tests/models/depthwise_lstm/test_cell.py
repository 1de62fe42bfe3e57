"""The cell against the second reading of Eqs 1-8, its packed form, what is shown and what is dropped."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from module_checks import randn
from second_reading import read_cell
from torch import Tensor

from fairseq_depthwise.models.depthwise_lstm.cell import (
    DepthwiseLSTMCell,
    DepthwiseRNNCell,
    DepthwiseState,
    Gates,
    HiddenNet,
)

WIDTH, HIDDEN = 4, 6

#: Hidden nets: width H (None for one layer) and activation.
NETS = [(HIDDEN, "glu"), (HIDDEN, "gelu"), (HIDDEN, "relu"), (None, "gelu"), (None, "relu")]
every_net = pytest.mark.parametrize(("hidden_dim", "activation"), NETS)


def build_net(input_dim: int, hidden_dim: int | None, activation: str) -> HiddenNet:
    return HiddenNet(input_dim=input_dim, embed_dim=WIDTH, hidden_dim=hidden_dim, activation=activation)


def shake_norms(cell: torch.nn.Module) -> None:
    """Norms that are not the identity, so that a forgotten scale or shift shows."""
    for name, parameter in cell.named_parameters():
        if "norm" in name:
            torch.nn.init.normal_(parameter, mean=0.5)


def build_cell(
    *, input_dim: int = 2 * WIDTH, hidden_dim: int | None = HIDDEN, activation: str = "glu"
) -> DepthwiseLSTMCell:
    torch.manual_seed(1)
    gates = Gates(input_dim=input_dim, embed_dim=WIDTH)
    cell = DepthwiseLSTMCell(gates=gates, hidden_net=build_net(input_dim, hidden_dim, activation)).double()
    shake_norms(cell)
    return cell


def build_rnn(hidden_dim: int | None = HIDDEN, activation: str = "glu") -> DepthwiseRNNCell:
    torch.manual_seed(1)
    cell = DepthwiseRNNCell(hidden_net=build_net(2 * WIDTH, hidden_dim, activation)).double()
    shake_norms(cell)
    return cell


def random_state(length: int = 3, batch: int = 2) -> tuple[Tensor, DepthwiseState]:
    attended, output, cell = randn(3, length, batch, WIDTH)
    return attended, DepthwiseState(output=output, cell=cell)


def options_of(hidden_dim: int | None, activation: str, cell: str = "lstm") -> dict[str, Any]:
    """Return what the second reading is given, in the names of the command line."""
    layers = 1 if hidden_dim is None else 2
    return {
        "depthwise_cell": cell,
        "depthwise_hidden_activation": activation,
        "depthwise_hidden_layers": layers,
    }


@every_net
@pytest.mark.parametrize("gradients", [True, False])  # the gates take another way without
@pytest.mark.parametrize("kind", ["lstm", "rnn"])
def test_forward_is_the_equations(kind: str, hidden_dim: int | None, activation: str, gradients: bool) -> None:
    cell = (build_cell if kind == "lstm" else build_rnn)(hidden_dim=hidden_dim, activation=activation)
    attended, state = random_state()
    with torch.set_grad_enabled(gradients):
        result = cell(attended, state)
    assert kind == "lstm" or result.cell is state.cell
    expected = read_cell(cell, attended, state.output, state.cell, options_of(hidden_dim, activation, kind))
    torch.testing.assert_close(tuple(result), expected)


# --- inference -------------------------------------------------------------------------------------------------------


# --- what is shown and what is dropped -------------------------------------------------------------------------------


def test_dropout_acts_inside_the_net_and_on_its_output_in_training_only() -> None:
    net = HiddenNet(input_dim=8, embed_dim=64, hidden_dim=128, dropout=0.5, activation_dropout=0.0)
    joined = torch.randn(5, 3, 8)
    assert torch.equal(net.eval()(joined), net(joined))
    torch.manual_seed(1)
    dropped = net.train()(joined)
    assert 0.3 < (dropped == 0).float().mean() < 0.7
