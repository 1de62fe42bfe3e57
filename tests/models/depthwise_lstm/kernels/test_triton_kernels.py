"""The kernels against a second reading of Eqs 2-8 in float64, whose gradients are PyTorch's.

Without a GPU the kernels run in Triton's interpreter.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from triton_probe import DEVICE, PROBLEM

if PROBLEM is not None:
    pytest.skip(PROBLEM, allow_module_level=True)

from fairseq_depthwise.models.depthwise_lstm.kernels import (
    triton_gate_update,  # if it can be
    triton_norm_activation,  # if it can be
)

EPS = 1e-6
SCALE = 1.25
ACTIVATIONS = ["glu", "gelu", "relu"]
UNTOUCHED = 7.0

#: Relative and absolute. Rounding alone changes a result of 1 by 6e-8, 5e-4 and 4e-3.
TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
DTYPES = list(TOLERANCE)


@pytest.fixture(autouse=True)
def _interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    if DEVICE.type == "cpu":
        monkeypatch.setenv("TRITON_INTERPRET", "1")


class Case:
    """Random arguments of the four functions.

    Args:
        strided: make ``projected``, ``grad_projected``, ``hidden``, ``cell`` and the gradients columns of wider ones.
        norm_dtype: of the norms' parameters.
    """

    def __init__(
        self,
        *,
        rows: int = 5,
        width: int = 12,
        hidden_width: int = 20,
        activation: str = "glu",
        dropout: bool = True,
        dtype: torch.dtype = torch.float32,
        norm_dtype: torch.dtype = torch.float32,
        strided: bool = False,
    ) -> None:
        generator = torch.Generator().manual_seed(1)
        self.tolerance = TOLERANCE[dtype]
        self.width, self.start, self.activation = width, 3 * width, activation
        result_width = hidden_width // 2 if activation == "glu" else hidden_width

        def normal(*size: int, mean: float = 0.0) -> Tensor:
            return torch.randn(size, generator=generator) + mean

        def matrix(columns: int, mean: float = 0.0) -> Tensor:
            whole = normal(rows, columns + 6, mean=mean).to(DEVICE, dtype)
            return whole[:, 3:-3] if strided else whole[:, 3:-3].contiguous()

        def mask(columns: int) -> Tensor | None:
            return (torch.rand(rows, columns, generator=generator) < 0.8).to(DEVICE) if dropout else None

        # Not around zero, and norms that are not the identity, so that a forgotten mean, scale or shift shows.
        self.projected = matrix(self.start + hidden_width, mean=0.5)
        self.hidden, self.cell = matrix(width), matrix(width)
        self.grad_output, self.grad_cell = matrix(width), matrix(width)
        self.grad_activated = matrix(result_width)
        self.keep_activated, self.keep_hidden = mask(result_width), mask(width)
        self.weight = normal(hidden_width, mean=1.0).to(DEVICE, norm_dtype)
        self.bias = normal(hidden_width).to(DEVICE, norm_dtype)
        self.gate_weight = normal(3, width, mean=1.0).to(DEVICE, norm_dtype)
        self.gate_bias = normal(3, width).to(DEVICE, norm_dtype)
        self.surroundings = torch.full((rows, self.start + hidden_width + 6), UNTOUCHED, device=DEVICE, dtype=dtype)
        self.grad_projected = self.surroundings[:, 3:-3]

    def assert_close(self, actual: Tensor, expected: Tensor, dtype: torch.dtype | None = None) -> None:
        assert actual.dtype == (dtype or self.projected.dtype)
        torch.testing.assert_close(actual.double(), expected, rtol=self.tolerance, atol=self.tolerance)

    def assert_untouched(self, first: int, last: int) -> None:
        """Only the columns ``first`` to ``last`` of ``grad_projected`` were written."""
        assert (self.surroundings[:, : 3 + first] == UNTOUCHED).all()
        assert (self.surroundings[:, 3 + last :] == UNTOUCHED).all()

    def check_norm_activation(self) -> None:
        """Result and gradients of the inside of the hidden net."""
        self.surroundings.fill_(UNTOUCHED)
        options: dict[str, Any] = {"keep": self.keep_activated, "scale": SCALE, "eps": EPS}
        options["activation"] = self.activation
        arguments = (self.projected, self.start, self.weight, self.bias)
        activated = triton_norm_activation.norm_activation(*arguments, **options)
        grads = triton_norm_activation.norm_activation_backward(
            self.grad_activated, *arguments, **options, grad_projected=self.grad_projected
        )

        projected, weight, bias = leaves(self.projected, self.weight, self.bias)
        values = normalized(projected[:, self.start :]) * weight + bias
        if self.activation == "glu":
            first, second = values.chunk(2, dim=-1)
            values = first / (1 + torch.exp(-second))
        elif self.activation == "gelu":
            values = values * torch.distributions.Normal(0.0, 1.0).cdf(values)
        else:
            values = values.clamp(min=0)
        values = dropped(values, self.keep_activated)
        values.backward(self.grad_activated.double())
        self.assert_close(activated, values.detach())
        self.assert_close(self.grad_projected[:, self.start :], projected.grad[:, self.start :])
        self.assert_close(grads[0], weight.grad, self.weight.dtype)
        self.assert_close(grads[1], bias.grad, self.bias.dtype)
        self.assert_untouched(self.start, self.projected.size(1))

    def check_gate_update(
        self, *, grad_output: bool = True, grad_cell: bool = True, joint: bool = False, skip: bool = False
    ) -> None:
        """Results and gradients of the gates and what they gate; ``False`` gives None for that gradient."""
        self.surroundings.fill_(UNTOUCHED)
        options: dict[str, Any] = {"keep": self.keep_hidden, "scale": SCALE, "eps": EPS, "joint": joint}
        options["skipped"] = self.grad_cell.flip(0) if skip else None  # any other numbers of that size
        arguments = (self.projected, self.gate_weight, self.gate_bias, self.hidden, self.cell)
        output, new_cell = triton_gate_update.gate_update(*arguments, **options)
        grads = triton_gate_update.gate_update_backward(
            self.grad_output if grad_output else None,
            self.grad_cell if grad_cell else None,
            *arguments,
            **options,
            grad_projected=self.grad_projected,
        )

        projected, weight, bias, hidden, cell, skipped = leaves(*arguments, self.grad_cell.flip(0))
        logits = projected[:, : self.start]
        values = normalized(logits) if joint else torch.cat([*map(normalized, logits.split(self.width, -1))], dim=-1)
        i, f, o = (
            1 / (1 + torch.exp(-(normal * weight[gate] + bias[gate])))
            for gate, normal in enumerate(values.split(self.width, dim=-1))
        )
        above = cell * f + (dropped(hidden, self.keep_hidden) + skipped * skip) * i
        loss = (above * o * self.grad_output.double()).sum() * grad_output
        (loss + (above * self.grad_cell.double()).sum() * grad_cell).backward()
        self.assert_close(output, (above * o).detach())
        self.assert_close(new_cell, above.detach())
        self.assert_close(self.grad_projected[:, : self.start], projected.grad[:, : self.start])
        self.assert_close(grads[0], hidden.grad)
        self.assert_close(grads[1], cell.grad)
        if skip:
            self.assert_close(grads[2], skipped.grad)
        self.assert_close(grads[3], weight.grad, self.gate_weight.dtype)
        self.assert_close(grads[4], bias.grad, self.gate_bias.dtype)
        self.assert_untouched(0, self.start)


BOTH = pytest.mark.parametrize("check", [Case.check_norm_activation, Case.check_gate_update])


def leaves(*tensors: Tensor) -> list[Tensor]:
    return [tensor.detach().double().requires_grad_() for tensor in tensors]


def normalized(values: Tensor) -> Tensor:
    centred = values - values.mean(dim=-1, keepdim=True)
    return centred / (centred.square().mean(dim=-1, keepdim=True) + EPS).sqrt()


def dropped(values: Tensor, keep: Tensor | None) -> Tensor:
    return values if keep is None else values * keep * SCALE


@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
class TestValues:
    @pytest.mark.parametrize("activation", ACTIVATIONS)
    def test_norm_activation(self, activation: str, dtype: torch.dtype, dropout: bool) -> None:
        Case(activation=activation, dtype=dtype, dropout=dropout).check_norm_activation()

    def test_gate_update(self, dtype: torch.dtype, dropout: bool) -> None:
        Case(dtype=dtype, dropout=dropout).check_gate_update()


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(
    ("rows", "hidden_width"), [(0, 20), (1, 20), (4, 2), (5, 64), pytest.param(3, 130, id="padded to 256")]
)
def test_sizes_of_the_hidden_net(rows: int, hidden_width: int, activation: str) -> None:
    Case(rows=rows, hidden_width=hidden_width, activation=activation).check_norm_activation()


@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_odd_hidden_width(activation: str) -> None:
    Case(hidden_width=21, activation=activation).check_norm_activation()


@pytest.mark.parametrize(("rows", "width"), [(0, 12), (1, 12), (4, 2), (5, 32), (3, 65)])
def test_widths_of_the_gates(rows: int, width: int) -> None:
    Case(rows=rows, width=width).check_gate_update()


@pytest.mark.parametrize(("joint", "skip"), [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("dropout", [False, True])
def test_joint_norm_and_skip(joint: bool, skip: bool, dropout: bool) -> None:
    Case(width=11, dropout=dropout).check_gate_update(joint=joint, skip=skip)


@BOTH
@pytest.mark.parametrize("rows", [5, 23], ids=["one or two each", "seven or eight each"])
def test_more_rows_than_programs(check: Any, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (triton_gate_update, triton_norm_activation):
        monkeypatch.setattr(module, "program_limit", lambda device, columns: 3)
    check(Case(rows=rows))


@BOTH
def test_columns_of_wider_tensors(check: Any) -> None:
    check(Case(strided=True))


@BOTH
def test_norms_in_low_precision(check: Any) -> None:
    check(Case(dtype=torch.bfloat16, norm_dtype=torch.bfloat16))


@pytest.mark.parametrize(("grad_output", "grad_cell"), [(True, False), (False, True), (False, False)])
def test_gradients_that_are_none(grad_output: bool, grad_cell: bool) -> None:
    Case().check_gate_update(grad_output=grad_output, grad_cell=grad_cell)


@BOTH
def test_masks_of_bytes(check: Any) -> None:
    case = Case()
    assert case.keep_activated is not None
    assert case.keep_hidden is not None
    case.keep_activated, case.keep_hidden = case.keep_activated.to(torch.uint8), case.keep_hidden.to(torch.uint8)
    check(case)


@BOTH
def test_rows_far_from_zero(check: Any) -> None:
    """The variance is that of centred values: of 100 +- 1 squared, float32 would keep three digits of the 1."""
    case = Case()
    case.projected = 100 + (16 * case.projected).round() / 16  # exact in float32, so that both sides see the same
    check(case)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_nan_stays_nan(activation: str) -> None:
    """What a loss scaler looks for must not vanish in an activation."""
    case = Case(activation=activation, dropout=False)
    case.projected[2, -1] = torch.nan
    activated = triton_norm_activation.norm_activation(
        case.projected, case.start, case.weight, case.bias, activation=activation, keep=None, scale=1.0, eps=EPS
    )
    assert activated[2].isnan().all()
    assert activated[[0, 1, 3, 4]].isfinite().all()


@BOTH
def test_transposed_projections_are_refused(check: Any) -> None:
    case = Case()
    case.projected = case.projected.T.contiguous().T
    with pytest.raises(ValueError, match="contiguous rows"):
        check(case)


@pytest.mark.parametrize(
    ("options", "named"), [({"activation": "tanh"}, "'tanh'"), ({"hidden_width": 21}, "21 is odd")]
)
def test_what_the_hidden_net_cannot_be_is_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Case(**options).check_norm_activation()
