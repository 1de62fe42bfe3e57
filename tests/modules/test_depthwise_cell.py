"""The cell against a second reading of Eqs 1-8, written with loops over positions and plain numbers."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fairseq_depthwise.modules.depthwise_cell import DepthwiseLSTMCell, DepthwiseState, Gates, HiddenNet

WIDTH, HIDDEN = 4, 6


def build_cell(*, input_dim: int = 2 * WIDTH, seed: int = 1) -> DepthwiseLSTMCell:
    """A float64 cell whose norms are not the identity, so that a forgotten scale or shift shows."""
    torch.manual_seed(seed)
    cell = DepthwiseLSTMCell(
        gates=Gates(input_dim=input_dim, embed_dim=WIDTH),
        hidden_net=HiddenNet(input_dim=input_dim, embed_dim=WIDTH, hidden_dim=HIDDEN),
    ).double()
    for name, parameter in cell.named_parameters():
        if "norm" in name:
            torch.nn.init.normal_(parameter, mean=0.5)
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


def naive_step(
    cell: DepthwiseLSTMCell, attended: list[float], output: list[float], past: list[float]
) -> list[list[float]]:
    """One position: [Output_i, Cell_i]."""
    joined = output + attended  # Eq 1: the output so far, then what the layer's attention gives
    gates = cell.gates
    per_gate = gates.projection.weight.view(3, WIDTH, -1)
    input_gate, forget_gate, output_gate = (
        [sigmoid(v) for v in normalised(product(per_gate[k], joined), gates.norm_weight[k], gates.norm_bias[k])]
        for k in range(3)
    )
    net = cell.hidden_net
    wide = normalised(product(net.first.weight, joined), net.norm.weight, net.norm.bias)
    half = len(wide) // 2
    activated = [wide[k] * sigmoid(wide[half + k]) for k in range(half)]
    hidden = product(net.second.weight, activated)
    new_cell = [c * f + h * i for c, f, h, i in zip(past, forget_gate, hidden, input_gate, strict=True)]
    return [[c * o for c, o in zip(new_cell, output_gate, strict=True)], new_cell]


def test_forward_is_the_equations() -> None:
    cell = build_cell()
    attended, state = random_state()
    result = cell(attended, state)
    for t in range(attended.size(0)):
        for b in range(attended.size(1)):
            output, new_cell = naive_step(
                cell, attended[t, b].tolist(), state.output[t, b].tolist(), state.cell[t, b].tolist()
            )
            assert result.output[t, b].tolist() == pytest.approx(output, rel=1e-10)
            assert result.cell[t, b].tolist() == pytest.approx(new_cell, rel=1e-10)


def test_gradients_of_inputs_and_parameters() -> None:
    cell = build_cell()
    attended, state = random_state(length=2, batch=1)
    inputs = [tensor.requires_grad_() for tensor in (attended, state.output, state.cell)]
    names, parameters = zip(*cell.named_parameters(), strict=True)

    def step(attended: Tensor, output: Tensor, past: Tensor, *values: Tensor) -> tuple[Tensor, Tensor]:
        replaced = dict(zip(names, values, strict=True))
        new = torch.func.functional_call(cell, replaced, (attended, DepthwiseState(output, past)))
        return new.output, new.cell

    leaves = [parameter.detach().clone().requires_grad_() for parameter in parameters]
    assert torch.autograd.gradcheck(step, (*inputs, *leaves))


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
