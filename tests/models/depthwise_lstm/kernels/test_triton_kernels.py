"""The kernels against a second reading of Eqs 2-8 in float64, and the cell with them against the readable one.

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

from fairseq_depthwise.models.depthwise_lstm.cell import DepthwiseLSTMCell, DepthwiseState, Gates, HiddenNet
from fairseq_depthwise.models.depthwise_lstm.kernels import (
    choice,
    triton_gate_update,
    triton_norm_activation,
    triton_rows,
)

EPS, SCALE = 1e-6, 1.25
ACTIVATIONS = ["glu", "gelu", "relu"]

#: Relative and absolute. Rounding alone changes a result of 1 by 6e-8, 5e-4 and 4e-3.
TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def build_cell(
    width: int = 12,
    hidden_dim: int | None = 20,
    *,
    activation: str = "glu",
    input_dim: int | None = None,
    dropout: float = 0.0,
    joint: bool = False,
    skip: bool = False,
    kernel: str = "eager",
) -> DepthwiseLSTMCell:
    torch.manual_seed(1)
    input_dim = input_dim or 2 * width
    cell = DepthwiseLSTMCell(
        gates=Gates(input_dim=input_dim, embed_dim=width, joint=joint),
        hidden_net=HiddenNet(
            input_dim=input_dim,
            embed_dim=width,
            hidden_dim=hidden_dim,
            activation=activation,
            dropout=dropout,
            activation_dropout=dropout,
        ),
        attention_skip=skip,
        kernel=kernel,
    )
    for name, parameter in cell.named_parameters():
        if "norm" in name:
            torch.nn.init.normal_(parameter, mean=0.7)
    return cell.to(DEVICE)


def inputs(
    width: int = 12, length: int = 3, batch: int = 5, dtype: torch.dtype = torch.float32, attended: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention's output, and the state below, with odd sizes."""
    generator = torch.Generator().manual_seed(2)
    parts = torch.randn(attended + 2, length, batch, width, generator=generator).to(DEVICE, dtype)
    return torch.cat(list(parts[2:]), dim=-1), parts[0], parts[1]


@pytest.fixture(autouse=True)
def _interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    if DEVICE.type == "cpu":
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(triton_rows, "PROGRAMS_ELSEWHERE", 2)
    monkeypatch.setattr(choice, "problems", {})


def normal(*size: int, mean: float = 0.0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Random numbers, not around zero where a forgotten mean would not show."""
    return (torch.randn(size, generator=torch.Generator().manual_seed(sum(size))) + mean).to(DEVICE, dtype)


def mask(rows: int, columns: int) -> Tensor:
    return (torch.rand(rows, columns, generator=torch.Generator().manual_seed(3)) < 0.8).to(DEVICE)


def assert_same(kernel: Any, reading: Any, tensors: list[Tensor], tolerance: float, grads: tuple[int, ...]) -> None:
    """Compare results and gradients; ``grads``: which results have one."""
    found, expected = [], []
    for function, dtype, into in ((kernel, None, found), (reading, torch.float64, expected)):
        leaves = [tensor.detach().to(dtype or tensor.dtype).requires_grad_() for tensor in tensors]
        results = function(*leaves)
        sums = [(results[index].double() * results[index].detach().double().cos()).sum() for index in grads]
        into += [*results, *torch.autograd.grad(sum(sums), leaves, allow_unused=True)]
    for one, other in zip(found, expected, strict=True):
        if other is not None:
            largest = float(other.detach().abs().max())
            torch.testing.assert_close(one.double(), other, rtol=tolerance, atol=tolerance * (1 + largest))
    assert [one.dtype for one in found[-len(tensors) :]] == [tensor.dtype for tensor in tensors]


def normalized(values: Tensor) -> Tensor:
    centred = values - values.mean(dim=-1, keepdim=True)
    return centred / (centred.square().mean(dim=-1, keepdim=True) + EPS).sqrt()


def dropped(values: Tensor, keep: Tensor | None) -> Tensor:
    return values if keep is None else values * keep * SCALE


def check_norm_activation(
    activation: str = "glu", *, rows: int = 5, width: int = 20, dropout: bool = True,
    dtype: torch.dtype = torch.float32, norms: torch.dtype = torch.float32, far: float = 0.5, strided: bool = False,
) -> None:  # fmt: skip
    keep = mask(rows, width // 2 if activation == "glu" else width) if dropout else None
    projected = normal(rows, width + 6, mean=far, dtype=dtype)[:, 3:-3]
    tensors = [projected if strided else projected.contiguous(), normal(width, mean=1.0, dtype=norms)]
    tensors.append(normal(width, dtype=norms))

    def kernel(*given: Tensor) -> tuple[Tensor]:
        options = {"activation": activation, "keep": keep, "scale": SCALE, "eps": EPS}
        return (triton_norm_activation.norm_activation(*given, **options),)

    def reading(projected: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor]:
        values = normalized(projected) * weight + bias
        if activation == "glu":
            first, second = values.chunk(2, dim=-1)
            values = first / (1 + torch.exp(-second))
        elif activation == "gelu":
            values = values * torch.distributions.Normal(0.0, 1.0).cdf(values)
        else:
            values = values.clamp(min=0)
        return (dropped(values, keep),)

    assert_same(kernel, reading, tensors, TOLERANCE[dtype], (0,))


def check_gate_update(
    *, rows: int = 5, width: int = 12, dropout: bool = True, dtype: torch.dtype = torch.float32,
    norms: torch.dtype = torch.float32, joint: bool = False, skip: bool = False, grads: tuple[int, ...] = (0, 1),
    far: float = 0.5, strided: bool = False,
) -> None:  # fmt: skip
    keep = mask(rows, width) if dropout else None
    projected = normal(rows, 3 * width + 6, mean=far, dtype=dtype)[:, 3:-3]
    tensors = [projected if strided else projected.contiguous(), normal(3, width, mean=1.0, dtype=norms)]
    tensors.append(normal(3, width, mean=0.1, dtype=norms))
    tensors += [normal(rows, width, mean=mean, dtype=dtype) for mean in ((0.0, 0.2, 0.4) if skip else (0.0, 0.2))]

    def kernel(*given: Tensor) -> tuple[Tensor, Tensor]:
        return triton_gate_update.gate_update(*given, keep=keep, scale=SCALE, eps=EPS, joint=joint)

    def reading(projected: Tensor, weight: Tensor, bias: Tensor, hidden: Tensor, cell: Tensor, *skipped: Tensor) -> Any:
        parts = [*map(normalized, projected.split(width, -1))]
        normals = normalized(projected) if joint else torch.cat(parts, dim=-1)
        i, f, o = (
            1 / (1 + torch.exp(-(normal * weight[gate] + bias[gate])))
            for gate, normal in enumerate(normals.split(width, dim=-1))
        )
        above = cell * f + (dropped(hidden, keep) + sum(skipped)) * i
        return above * o, above

    assert_same(kernel, reading, tensors, TOLERANCE[dtype], grads)


@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_values_of_the_hidden_net(activation: str, dtype: torch.dtype, dropout: bool) -> None:
    check_norm_activation(activation, dtype=dtype, dropout=dropout)


@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_values_of_the_gates(dtype: torch.dtype, dropout: bool) -> None:
    check_gate_update(dtype=dtype, dropout=dropout)


@pytest.mark.parametrize(("rows", "width"), [(1, 20), (4, 2), (5, 64), (23, 12), (3, 130)])
def test_sizes(rows: int, width: int) -> None:
    """One row; narrow; powers of two; more rows than programs; padded."""
    for activation in ACTIVATIONS:
        check_norm_activation(activation, rows=rows, width=width + (activation == "gelu"))
    check_gate_update(rows=rows, width=width)


@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize(("joint", "skip"), [(True, False), (False, True), (True, True)])
def test_joint_norm_and_skip(joint: bool, skip: bool, dropout: bool) -> None:
    check_gate_update(width=11, dropout=dropout, joint=joint, skip=skip)


@pytest.mark.parametrize(
    "options", [{"strided": True}, {"dtype": torch.bfloat16, "norms": torch.bfloat16}, {"far": 100.0}], ids=str
)
def test_columns_of_wider_tensors_low_precision_and_rows_far_from_zero(options: dict[str, Any]) -> None:
    """The variance is that of centred values: of 100 +- 1 squared, float32 would keep three digits of the 1."""
    check_norm_activation(**options)
    check_gate_update(**options)


@pytest.mark.parametrize("grads", [(0,), (1,)])
def test_gradients_that_are_none(grads: tuple[int, ...]) -> None:
    check_gate_update(grads=grads)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_nan_stays_nan(activation: str) -> None:
    """What a loss scaler looks for must not vanish in an activation."""
    projected, norm = normal(5, 20), normal(20)
    projected[2, -1] = torch.nan
    options: dict[str, Any] = {"activation": activation, "keep": None, "scale": 1.0, "eps": EPS}
    activated = triton_norm_activation.norm_activation(projected, norm, norm, **options)
    assert activated[2].isnan().all()
    assert activated[[0, 1, 3, 4]].isfinite().all()


# --- the cell --------------------------------------------------------------------------------------------------------

VARIANTS: dict[str, dict[str, Any]] = {
    "glu": {},
    "gelu": {"activation": "gelu"},
    "one layer": {"activation": "relu", "hidden_dim": None},
    "concat": {"input_dim": 36},
    "joint, skip": {"joint": True, "skip": True},
    "skip, concat, dropout": {"skip": True, "input_dim": 36, "dropout": 0.4},
}


def run(cell: DepthwiseLSTMCell, tensors: tuple[Tensor, ...]) -> list[Tensor]:
    """Output, cell state, and the gradients of inputs and parameters."""
    torch.manual_seed(4)
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    above = cell(leaves[0], DepthwiseState(*leaves[1:]))
    loss = (above.output * above.output.detach().cos()).sum() + above.cell.square().sum()
    return [*(one.detach() for one in above), *torch.autograd.grad(loss, [*leaves, *cell.parameters()])]


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_cell_is_the_readable_one(variant: str, autocast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    options, tolerance = VARIANTS[variant], 3e-2 if autocast else 1e-5
    if DEVICE.type == "cuda":
        options = {**options, "dropout": 0.0}  # the readable cell draws its masks inside another kernel
    tensors = inputs(attended=2 if "input_dim" in options else 1)
    with torch.autocast(DEVICE.type, dtype=torch.bfloat16, enabled=autocast):
        expected, found = (run(build_cell(**options, kernel=kernel).train(), tensors) for kernel in ("eager", "triton"))
    assert list(choice.problems.values()) == [None]  # it was not the readable cell itself
    assert found[1].dtype == torch.float32
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance * float(other.abs().max()))
    cell = build_cell(**options, kernel="triton").eval()
    with torch.no_grad():
        before = cell(tensors[0], DepthwiseState(*tensors[1:]))
        cell.make_generation_fast_(name="cell")
        torch.testing.assert_close(cell(tensors[0], DepthwiseState(*tensors[1:])), before)


def kind(**changes: Any) -> choice.CellKind:
    dtype = torch.float32
    return choice.CellKind(12, 20, "glu", True, False, False, dtype, dtype, dtype)._replace(**changes)


def test_where_the_kernels_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, cpu = torch.device("cuda"), torch.device("cpu")
    monkeypatch.setattr(choice, "find_problem", lambda device, kind: "slow" if kind.width > 12 else None)
    assert choice.use_triton("auto", cuda, kind)
    assert choice.use_triton("triton", cpu, kind)
    assert not choice.use_triton("auto", cpu, kind)
    assert not choice.use_triton("eager", cuda, kind)
    assert not choice.use_triton("auto", cuda, lambda: kind(width=16))
    assert not choice.use_triton("auto", cuda, lambda: kind(activation="silu"))
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert not choice.use_triton("triton", cpu, kind)


FAULTS: dict[str, Any] = {
    "inexact": lambda real, *given, **options: tuple(one * 1.001 for one in real(*given, **options)),
    "nan": lambda real, *given, **options: tuple(one + torch.nan for one in real(*given, **options)),
    "no dropout": lambda real, *given, **options: real(*given, **{**options, "keep": None}),
    "one gate's gradient": lambda real, logits, *given, **options: real(
        torch.cat([logits[:, :12].detach(), logits[:, 12:]], dim=1), *given, **options
    ),
    "exception": lambda *_, **__: 1 / 0,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faulty_kernels_are_found_at_their_first_use_and_once(
    fault: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert choice.find_problem(DEVICE, kind()) is None
    assert choice.find_problem(DEVICE, kind(joint=True, skip=True, activation="gelu", dtype=torch.bfloat16)) is None
    real = triton_gate_update.gate_update
    monkeypatch.setattr(
        triton_gate_update, "gate_update", lambda *given, **options: FAULTS[fault](real, *given, **options)
    )
    drawn = torch.random.get_rng_state()
    for _ in range(2):
        assert not choice.use_triton("triton", DEVICE, kind)
    assert len(caplog.records) == 1
    assert torch.equal(torch.random.get_rng_state(), drawn)
