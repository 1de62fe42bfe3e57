"""The map in closed form: against least squares, on data that is hard for sums, and in parts."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fairseq_depthwise.analysis.probe.linear_fit import LayerMoments, LinearFit

WIDTH = 5


def normal(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def random_map() -> tuple[Tensor, Tensor]:
    return normal(WIDTH, WIDTH, seed=2), normal(WIDTH, seed=3)


def moments_of(
    below: Tensor, above: Tensor, *, sizes: int = 16, precision: torch.dtype = torch.float64
) -> LayerMoments:
    moments = LayerMoments(below.size(1), precision=precision)
    for x, y in zip(below.split(sizes), above.split(sizes), strict=True):
        moments.add(x, y)
    return moments


def curved(count: int = 200) -> tuple[Tensor, Tensor]:
    """A layer that is far from linear."""
    below = normal(count, WIDTH)
    weight, bias = random_map()
    return below, (below @ weight.t() + bias).tanh() + 0.3 * below.square()


def least_squares(below: Tensor, above: Tensor) -> Tensor:
    """W and b side by side, with PyTorch's solver on all data at once."""
    ones = torch.ones(len(below), 1, dtype=below.dtype)
    return torch.linalg.lstsq(torch.cat([below, ones], dim=1), above, driver="gelsd").solution.t()


def error_of(fit: LinearFit, below: Tensor, above: Tensor) -> float:
    """What applying the map gives."""
    layer = nn.Linear(WIDTH, WIDTH, dtype=torch.float64)
    layer.load_state_dict({"weight": fit.weight, "bias": fit.bias})
    return nn.functional.mse_loss(layer(below), above).item()


@pytest.mark.parametrize("sizes", [1, 7, 200])
def test_it_is_the_least_squares_solution(sizes: int) -> None:
    below, above = curved()
    for ridge, near in ((None, 1e-7), (0, 1e-12)):
        fit = moments_of(below, above, sizes=sizes).fit(ridge)
        found = torch.cat([fit.weight, fit.bias[:, None]], dim=1)
        torch.testing.assert_close(found, least_squares(below, above), rtol=0, atol=near)
        assert fit.error == pytest.approx(error_of(fit, below, above), rel=1e-9)
        assert fit.positions == 200


def test_large_means_in_single_precision() -> None:
    """Products that were centred afterwards would have lost all of it: the mean is 1000 deviations."""
    below, (weight, bias) = (normal(400, WIDTH) + 1000).float(), random_map()
    above = (below.double() @ weight.t() + bias).float()
    fit = moments_of(below, above, precision=torch.float32).fit()
    torch.testing.assert_close(fit.weight, weight, rtol=0, atol=2e-3)
    assert error_of(fit, below.double(), above.double()) < 1e-5


@pytest.mark.parametrize("precision", [torch.float64, torch.float32])
def test_features_that_do_not_vary_get_no_weight(precision: torch.dtype) -> None:
    """0.1 has no end in binary: the mean of many is another number, which must not count as variation."""
    below, above = curved()
    below[:, 1] = 0.1
    below[:, 3] = 0.0
    fit = moments_of(below.to(precision), above.to(precision), sizes=7, precision=precision).fit()
    assert fit.weight[:, [1, 3]].abs().max() < 1e-3
    rest = least_squares(below[:, [0, 2, 4]], above)
    torch.testing.assert_close(fit.weight[:, [0, 2, 4]], rest[:, :3], rtol=0, atol=1e-4)


def test_equal_features_share_a_weight() -> None:
    """Below the first layer of the depth-wise LSTM model the output and the cell are both the embedding."""
    half, above = normal(100, WIDTH), normal(100, 2 * WIDTH, seed=4)
    fit = moments_of(torch.cat([half, half], dim=1), above).fit()
    torch.testing.assert_close(fit.weight[:, :WIDTH], fit.weight[:, WIDTH:], rtol=0, atol=1e-5)
    whole = least_squares(half, above)
    torch.testing.assert_close(2 * fit.weight[:, :WIDTH], whole[:, :WIDTH], rtol=0, atol=1e-5)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_fewer_positions_than_features(count: int) -> None:
    below, above = curved(count)
    fit = moments_of(below, above, sizes=2).fit()
    assert fit.weight.isfinite().all()
    assert error_of(fit, below, above) < 1e-6
    # Of all maps without an error, it is one with small weights.
    assert fit.weight.abs().max() < 20


def test_the_first_features_alone() -> None:
    below, above = curved()
    whole = moments_of(below, above)
    part = whole.select_first_features(2)
    expected = moments_of(below[:, :2], above[:, :2])
    torch.testing.assert_close(part.fit().weight, expected.fit().weight, rtol=0, atol=1e-12)
    assert part.fit().error == pytest.approx(expected.fit().error)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("side", [0, 1])
def test_what_is_not_finite_is_refused(value: float, side: int) -> None:
    data = curved()
    data[side][3, 1] = value
    with pytest.raises(ValueError, match="input or output is not finite"):
        moments_of(*data).fit()
