"""The cell against a second reading of Eqs 1-8, written with loops over positions and plain numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
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
    generator = torch.Generator().manual_seed(2)
    attended, output, cell = torch.randn(3, length, batch, WIDTH, generator=generator, dtype=torch.float64)
    return attended, DepthwiseState(output=output, cell=cell)


def normalised(values: list[float], weight: Tensor, bias: Tensor) -> list[float]:
    """Layer norm of one vector: mean 0, variance 1 (divided by n), epsilon 1e-6, then scale and shift."""
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / len(values)
    return [
        (value - mean) / math.sqrt(variance + 1e-6) * scale + shift
        for value, scale, shift in zip(values, weight.tolist(), bias.tolist(), strict=True)
    ]


def product(matrix: Tensor, vector: list[float]) -> list[float]:
    return [sum(entry * value for entry, value in zip(row, vector, strict=True)) for row in matrix.tolist()]


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def naive_hidden(net: HiddenNet, joined: list[float], activation: str, layers: int) -> list[float]:
    """Eq 5 for one layer, Eq 6 for two."""
    wide = normalised(product(net.first.weight, joined), net.norm.weight, net.norm.bias)
    if activation == "glu":
        half = len(wide) // 2
        activated = [wide[k] * sigmoid(wide[half + k]) for k in range(half)]
    elif activation == "gelu":
        activated = [value * 0.5 * (1 + math.erf(value / math.sqrt(2))) for value in wide]
    else:
        activated = [max(value, 0.0) for value in wide]
    return activated if layers == 1 else product(net.second.weight, activated)


def naive_step(
    cell: DepthwiseLSTMCell,
    attended: list[float],
    output: list[float],
    past: list[float],
    activation: str = "glu",
    layers: int = 2,
) -> list[list[float]]:
    """One position: [Output_i, Cell_i]."""
    joined = output + attended  # Eq 1: the output so far, then what the layer's attention gives
    gates = cell.gates
    per_gate = gates.projection.weight.view(3, WIDTH, -1)
    input_gate, forget_gate, output_gate = (
        [sigmoid(v) for v in normalised(product(per_gate[k], joined), gates.norm_weight[k], gates.norm_bias[k])]
        for k in range(3)
    )
    hidden = naive_hidden(cell.hidden_net, joined, activation, layers)
    new_cell = [c * f + h * i for c, f, h, i in zip(past, forget_gate, hidden, input_gate, strict=True)]
    return [[c * o for c, o in zip(new_cell, output_gate, strict=True)], new_cell]


@every_net
@pytest.mark.parametrize("gradients", [True, False])  # the gates take another way without
def test_forward_is_the_equations(hidden_dim: int | None, activation: str, gradients: bool) -> None:
    cell = build_cell(hidden_dim=hidden_dim, activation=activation)
    attended, state = random_state()
    with torch.set_grad_enabled(gradients):
        result = cell(attended, state)
    for t in range(attended.size(0)):
        for b in range(attended.size(1)):
            inputs = attended[t, b].tolist(), state.output[t, b].tolist(), state.cell[t, b].tolist()
            output, new_cell = naive_step(cell, *inputs, activation, 1 if hidden_dim is None else 2)
            assert result.output[t, b].tolist() == pytest.approx(output, rel=1e-10)
            assert result.cell[t, b].tolist() == pytest.approx(new_cell, rel=1e-10)


@every_net
def test_the_rnn_is_the_hidden_net_alone(hidden_dim: int | None, activation: str) -> None:
    cell = build_rnn(hidden_dim, activation)
    attended, state = random_state()
    result = cell(attended, state)
    assert result.cell is state.cell
    for t in range(attended.size(0)):
        for b in range(attended.size(1)):
            joined = state.output[t, b].tolist() + attended[t, b].tolist()
            expected = naive_hidden(cell.hidden_net, joined, activation, 1 if hidden_dim is None else 2)
            assert result.output[t, b].tolist() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(
    "cell",
    [
        build_cell(),
        build_cell(activation="gelu"),
        build_cell(hidden_dim=None, activation="gelu"),
        build_cell(hidden_dim=None, activation="relu"),
        build_rnn(),
        build_rnn(None, "gelu"),
    ],
    ids=["two layers", "two layers, gelu", "one layer", "one layer, relu", "rnn", "rnn, one layer"],
)
def test_gradients_of_inputs_and_parameters(cell: DepthwiseLSTMCell | DepthwiseRNNCell) -> None:
    attended, state = random_state(length=2, batch=1)
    inputs = [tensor.requires_grad_() for tensor in (attended, state.output, state.cell)]
    names, parameters = zip(*cell.named_parameters(), strict=True)

    def step(attended: Tensor, output: Tensor, past: Tensor, *values: Tensor) -> tuple[Tensor, Tensor]:
        replaced = dict(zip(names, values, strict=True))
        new = torch.func.functional_call(cell, replaced, (attended, DepthwiseState(output, past)))
        return new.output, new.cell

    leaves = [parameter.detach().clone().requires_grad_() for parameter in parameters]
    assert torch.autograd.gradcheck(step, (*inputs, *leaves))


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
    assert build is build_rnn or cell._packed is not None
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


def test_each_gate_has_statistics_of_its_own() -> None:
    """A joint norm over the 3d projected values (as in a related program of the authors) would couple the gates."""
    cell = build_cell()
    joined = torch.randn(1, 1, 2 * WIDTH, dtype=torch.float64)
    before = cell.gates(joined)
    with torch.no_grad():
        cell.gates.projection.weight[:WIDTH] *= 100  # the input gate's rows
    after = cell.gates(joined)
    assert torch.equal(before[1], after[1])
    assert torch.equal(before[2], after[2])


def test_no_linear_map_has_a_bias() -> None:
    names = [name for name, _ in build_cell().named_parameters()]
    assert sorted(names) == [
        "gates.norm_bias",
        "gates.norm_weight",
        "gates.projection.weight",
        "hidden_net.first.weight",
        "hidden_net.norm.bias",
        "hidden_net.norm.weight",
        "hidden_net.second.weight",
    ]


def test_input_may_be_wider_than_the_state() -> None:
    cell = build_cell(input_dim=3 * WIDTH)
    attended, state = random_state()
    assert cell(torch.cat([attended, attended], dim=-1), state).output.shape == attended.shape


def test_dropout_acts_inside_the_net_and_on_its_output_in_training_only() -> None:
    net = HiddenNet(input_dim=8, embed_dim=64, hidden_dim=128, dropout=0.5, activation_dropout=0.0)
    joined = torch.randn(5, 3, 8)
    assert torch.equal(net.eval()(joined), net(joined))
    torch.manual_seed(1)
    dropped = net.train()(joined)
    assert 0.3 < (dropped == 0).float().mean() < 0.7


def test_odd_hidden_width_is_refused() -> None:
    with pytest.raises(ValueError, match="hidden_dim 5 is odd"):
        HiddenNet(input_dim=8, embed_dim=4, hidden_dim=5)


def test_one_layer_has_nothing_to_halve() -> None:
    with pytest.raises(ValueError, match="one layer cannot have a glu"):
        HiddenNet(input_dim=8, embed_dim=4, hidden_dim=None)
    assert HiddenNet(input_dim=8, embed_dim=4, hidden_dim=5, activation="gelu").second.in_features == 5
