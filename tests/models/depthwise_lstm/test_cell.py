"""The cell against the second reading of Eqs 1-8, its packed form, what is shown and what is dropped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from module_checks import randn, require_gradients
from second_reading import read_cell
from torch import Tensor

from fairseq_depthwise.models.depthwise_lstm.cell import (
    DepthwiseLSTMCell,
    DepthwiseRNNCell,
    DepthwiseState,
    Gates,
    GateValues,
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


class OfTensors(torch.nn.Module):
    """A cell whose arguments are plain tensors."""

    def __init__(self, cell: torch.nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, attended: Tensor, output: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        return tuple(self.cell(attended, DepthwiseState(output, past)))  # type: ignore[return-value]  # two of them


@every_net
def test_gradients_of_inputs_and_parameters(hidden_dim: int | None, activation: str) -> None:
    attended, state = random_state(length=2, batch=1)
    require_gradients(OfTensors(build_cell(hidden_dim=hidden_dim, activation=activation)), (attended, *state))


# --- inference -------------------------------------------------------------------------------------------------------


def prepared(cell: DepthwiseLSTMCell | DepthwiseRNNCell) -> DepthwiseLSTMCell | DepthwiseRNNCell:
    """After fairseq's hook, which reaches every module."""
    for module in cell.eval().modules():
        if hasattr(module, "make_generation_fast_"):
            module.make_generation_fast_(name="")
    return cell


@every_net
@pytest.mark.parametrize("build", [build_cell, build_rnn])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 0.05)], ids=str
)
def test_the_packed_cell_is_the_readable_one(
    hidden_dim: int | None, activation: str, build: Callable[..., Any], dtype: torch.dtype, tolerance: float
) -> None:
    cell = build(hidden_dim=hidden_dim, activation=activation)
    attended, state = random_state()
    expected = cell(attended, state)
    cell = prepared(cell.to(dtype))
    assert build is build_rnn or cell._joined is not None
    with torch.no_grad():
        for _ in range(2):  # the first time the weights are packed
            found = cell(attended.to(dtype), DepthwiseState(*(one.to(dtype) for one in state)))
            assert found.output.dtype == found.cell.dtype == dtype
            torch.testing.assert_close(found.output.double(), expected.output, rtol=tolerance, atol=tolerance)
            torch.testing.assert_close(found.cell.double(), expected.cell, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_packed_cell_follows_its_weights(dtype: torch.dtype) -> None:
    packed, plain = prepared(build_cell().to(dtype)), build_cell().to(dtype)
    attended, state = random_state()
    inputs = attended.to(dtype), DepthwiseState(*(one.to(dtype) for one in state))
    with torch.no_grad():
        packed(*inputs)
        for parameter in ("gates.projection.weight", "hidden_net.first.weight", "hidden_net.second.weight"):
            for cell in (packed, plain):
                cell.get_parameter(parameter).mul_(-2)
            torch.testing.assert_close(packed(*inputs).cell, plain(*inputs).cell, rtol=0.02, atol=0.02)


def test_a_packed_cell_can_be_trained_on() -> None:
    seen: list[tuple[GateValues, DepthwiseState]] = []
    cell = prepared(build_cell()).train()
    cell.observer = lambda *shown: seen.append(shown)
    attended, state = random_state()
    cell(attended, state).output.sum().backward()
    assert len(seen) == 1
    assert all(parameter.grad is not None for parameter in cell.parameters())


# --- what is shown and what is dropped -------------------------------------------------------------------------------


def test_the_observer_sees_training_forwards_only() -> None:
    seen: list[tuple[GateValues, DepthwiseState]] = []
    cell = build_cell()
    cell.observer = lambda *shown: seen.append(shown)
    attended, state = random_state()
    cell.eval()(attended, state)
    assert seen == []
    cell.train()(attended, state)
    (((input_gate, forget_gate, output_gate), new),) = seen
    assert torch.equal(new.output, cell(attended, state).output)
    for shown, value in zip(seen[0][0], cell.gate_values(attended, state), strict=True):
        assert torch.equal(shown, value)
    torch.testing.assert_close(new.output, new.cell * output_gate)
    joined = torch.cat([state.output, attended], dim=-1)
    torch.testing.assert_close(new.cell, state.cell * forget_gate + cell.hidden_net(joined) * input_gate)


def test_dropout_acts_inside_the_net_and_on_its_output_in_training_only() -> None:
    net = HiddenNet(input_dim=8, embed_dim=64, hidden_dim=128, dropout=0.5, activation_dropout=0.0)
    joined = torch.randn(5, 3, 8)
    assert torch.equal(net.eval()(joined), net(joined))
    torch.manual_seed(1)
    dropped = net.train()(joined)
    assert 0.3 < (dropped == 0).float().mean() < 0.7
