"""The order of units: the matrix, its penalty, its gradient, and that it becomes a permutation."""

from __future__ import annotations

import pytest
import torch
from second_reading_mute import read_penalty, read_permutation, read_projection, read_sequence
from torch import Tensor

from fairseq_depthwise.models.mute.order import UnitOrder, coefficients, nearest_permutation, penalty, project

every_number_of_units = pytest.mark.parametrize("units", [2, 3, 4, 8])


def uniform(units: int, low: float, high: float = 1.0, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return low + (high - low) * torch.rand(units, units, generator=generator, dtype=torch.float64)


def permutation_of(*places: int) -> Tensor:
    """Unit i is at place ``places[i]``."""
    return torch.eye(len(places), dtype=torch.float64)[list(places)]


def raw_with(change: str, units: int) -> Tensor:
    raw = uniform(units, 0.1)
    if change == "a zero row":
        raw[1] = 0
    if change == "a negative column":
        raw[:, 0] = -1
    if change == "nothing above zero":
        raw -= 2
    return raw


# --- the matrix ------------------------------------------------------------------------------------------------------


@every_number_of_units
@pytest.mark.parametrize("low", [0.0, -1.0], ids=["positive", "of both signs"])
def test_the_matrix_is_the_naive_one(units: int, low: float) -> None:
    for seed in range(5):
        raw = uniform(units, low, seed=seed)
        matrix = project(raw)
        expected = torch.tensor(read_projection(raw.tolist()), dtype=torch.float64)
        torch.testing.assert_close(matrix, expected, rtol=1e-9, atol=1e-12)


@every_number_of_units
@pytest.mark.parametrize("change", ["nothing", "a zero row", "a negative column", "nothing above zero"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_rows_and_columns_sum_to_one(units: int, change: str, dtype: torch.dtype) -> None:
    """In float32 or more, whatever the parameter's precision."""
    for seed in range(5):
        raw = (raw_with(change, units) * uniform(units, 0.3, seed=seed)).to(dtype)
        matrix = project(raw)
        assert matrix.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert matrix.min() >= 0
        for dim in (0, 1):
            assert (matrix.sum(dim) - 1).abs().max() < 1e-3


# --- what it does ----------------------------------------------------------------------------------------------------


@every_number_of_units
def test_one_sum_is_permuting_accumulating_and_summing(units: int) -> None:
    """Equations 14 to 16 one after the other."""
    order = UnitOrder(units=units).double()
    torch.nn.init.uniform_(order.raw)
    weights, outputs = uniform(units, -1.0)[0], uniform(units, -1.0, seed=2)
    expected = read_sequence(read_projection(order.raw.tolist()), weights, list(outputs))
    torch.testing.assert_close(coefficients([order], weights[None])[0] @ outputs, expected)


def test_it_says_which_unit_is_where() -> None:
    """Unit 0 at place 2 is: at place 2 there is unit 0."""
    order = UnitOrder(units=4)
    order.raw.data = permutation_of(2, 0, 3, 1).float()
    assert order.order() == [1, 3, 0, 2]
    assert order.distance() < 2e-3
    order.raw.data = 0.7 * order.raw.data + 0.1
    assert order.order() == [1, 3, 0, 2]
    # Four entries are 0.8 / 1.1, the others 0.1 / 1.1.
    assert order.distance() == pytest.approx((4 * (0.3 / 1.1) ** 2 + 12 * (0.1 / 1.1) ** 2) ** 0.5, rel=1e-2)


@pytest.mark.parametrize("units", [2, 3, 4, 5])
def test_the_nearest_permutation_is_that_of_all(units: int) -> None:
    for seed in range(20):
        matrix = project(uniform(units, -0.5, seed=seed))
        assert nearest_permutation(matrix).tolist() == read_permutation(matrix.tolist())


# --- the penalty -----------------------------------------------------------------------------------------------------


@every_number_of_units
def test_the_penalty_is_the_equation(units: int) -> None:
    for seed in range(10):
        matrix = uniform(units, -0.5, seed=seed)
        assert penalty(matrix).item() == pytest.approx(read_penalty(matrix.tolist()))


# --- the gradient ----------------------------------------------------------------------------------------------------


def gradients(raw: Tensor, upstream: Tensor) -> Tensor:
    """What the parameter gets for a gradient of the matrix."""
    raw = raw.clone().requires_grad_()
    (project(raw) * upstream).sum().backward()
    assert raw.grad is not None
    return raw.grad


@every_number_of_units
def test_what_the_projection_would_undo_is_not_in_the_gradient(units: int) -> None:
    """Otherwise it is the matrix's gradient: a term of the row and one of the column are missing."""
    upstream = uniform(units, -1.0, seed=5)
    found = gradients(uniform(units, 0.1), upstream)
    missing = upstream - found
    centre = missing - missing.mean(0, keepdim=True) - missing.mean(1, keepdim=True) + missing.mean()
    torch.testing.assert_close(centre, torch.zeros_like(centre))
    assert missing.abs().max() > 0.01


@every_number_of_units
@pytest.mark.parametrize("parts", [1, 2, 5])
def test_only_steps_from_zero_down_are_left_out_whatever_the_parts(units: int, parts: int) -> None:
    """The first part alone would be decided otherwise."""
    for seed in range(5):
        order = UnitOrder(units=units).double()
        order.raw.data = uniform(units, -1.0, seed=seed)
        order.raw.data.fill_diagonal_(0.0)
        upstream = uniform(units, -1.0, seed=seed + 10)
        whole = gradients(order.raw.detach(), upstream)
        first = -3 * upstream if parts > 1 else upstream
        for part in [first] + [(upstream - first) / max(parts - 1, 1)] * (parts - 1):
            (order.matrix() * part).sum().backward()
        order.finish_gradient()
        expected = torch.where(order.raw <= 0, whole.clamp(max=0), whole).detach()
        torch.testing.assert_close(order.raw.grad, expected)
        order.finish_gradient()
        torch.testing.assert_close(order.raw.grad, expected)


def test_a_gradient_that_there_is_not_stays_away() -> None:
    order = UnitOrder(units=2)
    order.finish_gradient()
    assert order.raw.grad is None


# --- becoming a permutation ------------------------------------------------------------------------------------------


def assert_is_a_permutation(matrix: Tensor) -> None:
    largest = torch.zeros_like(matrix).scatter(1, matrix.argmax(1, keepdim=True), 1.0)
    assert sorted(matrix.argmax(1).tolist()) == list(range(len(matrix)))
    torch.testing.assert_close(matrix, largest, rtol=0, atol=0.02)


@every_number_of_units
def test_the_penalty_makes_a_permutation(units: int) -> None:
    torch.manual_seed(2)
    order = UnitOrder(units=units)
    optimizer = torch.optim.Adam([order.raw], lr=0.01)
    for _ in range(200):
        optimizer.zero_grad()
        penalty(order.matrix()).backward()
        order.finish_gradient()
        optimizer.step()
    assert_is_a_permutation(order.matrix().detach())
