"""Quantized maps against a reading of what they say of themselves, and against the bound of its rounding."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fairseq_compat import UserError
from fairseq_depthwise.modules.linear.batched import UnitLinear
from fairseq_depthwise.modules.linear.prepacked import packable, prepack
from fairseq_depthwise.modules.linear.quantized import (
    QuantizedLinear,
    QuantizedUnitLinear,
    _engine_for,
    _overflows,
    require_quantized_products,
)

#: The last one is wide enough for the other set of products.
every_width = pytest.mark.parametrize("outputs", [1, 16, 33, 9000])
every_shape = pytest.mark.parametrize("shape", [(1,), (2, 3, 5)], ids=str)


def weight_of(outputs: int, inputs: int = 24) -> Tensor:
    """Outputs of very different size."""
    torch.manual_seed(1)
    return torch.randn(outputs, inputs) * torch.linspace(0.01, 3, outputs)[:, None]


def values_of(*shape: int) -> Tensor:
    return torch.randn(*shape, 24, generator=torch.Generator().manual_seed(2)) + 0.3


def largest_step(weight: Tensor) -> int:
    """Return the last step of the inputs: processors without instructions for 8 bits have 7 of them."""
    return 127 if _overflows(_engine_for(weight.size(0))) else 255


def steps_of(weight: Tensor, values: Tensor) -> tuple[Tensor, float, int]:
    """The scale of each output, the scale of the inputs, and which of their steps is 0."""
    low, high = min(values.min().item(), 0), max(values.max().item(), 0)
    scale = (high - low) / largest_step(weight)
    return weight.abs().amax(dim=1).double() / 127, scale, round(-low / scale)


def read(weight: Tensor, bias: Tensor | None, values: Tensor) -> Tensor:
    """Rounded weights and inputs, multiplied in double precision."""
    scales, scale, zero = steps_of(weight, values)
    rounded = ((values.double() / scale).round() + zero).clamp(0, largest_step(weight)) - zero
    product = rounded @ (weight.double() / scales[:, None]).round().T * scales * scale
    return product if bias is None else product + bias


@every_width
@every_shape
@pytest.mark.parametrize("bias", [False, True])
def test_as_rounded_by_hand(outputs: int, shape: tuple[int, ...], bias: bool) -> None:
    weight, values = weight_of(outputs), values_of(*shape)
    offset = torch.randn(outputs) if bias else None
    found = QuantizedLinear(weight, offset)(values)
    assert found.dtype == torch.float32
    assert found.shape == (*shape, outputs)
    torch.testing.assert_close(found.double(), read(weight, offset, values), rtol=1e-5, atol=1e-5)
    # Each rounding is off by half a step at most, where no product is of two such errors alone.
    scales, scale, _ = steps_of(weight, values)
    exact = nn.functional.linear(values, weight, offset).double()
    bound = values.double().abs().sum(-1, keepdim=True) * scales / 2 + weight.double().abs().sum(-1) * scale / 2
    bound += values.size(-1) * scales * scale / 4
    assert ((found - exact).abs() <= bound + 1e-5).all()
    assert (found - exact).abs().max() > 1e-4


@every_width
def test_columns_of_another_order_in_memory(outputs: int) -> None:
    product = QuantizedLinear(weight_of(outputs))
    values = values_of(5, 3)
    torch.testing.assert_close(product(values.transpose(0, 1)), product(values).transpose(0, 1), rtol=0, atol=1e-6)


@every_width
def test_the_largest_values_do_not_overflow(outputs: int) -> None:
    """Pairs of products that would not fit in 16 bits."""
    found = QuantizedLinear(torch.full((outputs, 512), 0.5))(torch.full((8, 512), 2.0))
    torch.testing.assert_close(found, torch.full((8, outputs), 512.0), rtol=0.005, atol=0)


def test_weights_of_zero() -> None:
    found = QuantizedLinear(torch.zeros(4, 24), torch.arange(4.0))(values_of(3))
    assert found.tolist() == [[0.0, 1.0, 2.0, 3.0]] * 3


@pytest.mark.parametrize(("maps", "inputs"), [(1, 1), (1, 3), (3, 1), (3, 3)])
def test_units(maps: int, inputs: int) -> None:
    torch.manual_seed(1)  # values that lie between two steps may be rounded the other way
    linear = UnitLinear(units=maps, in_features=24, out_features=6)
    nn.init.normal_(linear.bias)
    values = values_of(inputs, 4, 2) * torch.arange(1, inputs + 1)[:, None, None, None]
    found = QuantizedUnitLinear(linear)(values)
    assert found.shape == linear(values).shape
    parameters = list(zip(linear.weight.detach(), linear.bias.detach(), strict=True))
    if maps == 1:
        expected = read(parameters[0][0].T, parameters[0][1], values)
    else:
        expected = torch.stack(
            [read(weight.T, bias, values[unit % inputs]) for unit, (weight, bias) in enumerate(parameters)]
        )
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)


def test_packing_leaves_quantized_maps_alone() -> None:
    owner = nn.Module()
    owner.linear = product = QuantizedLinear(weight_of(16))
    prepack(owner, "linear")
    assert owner.linear is product
    assert not packable(product)


def test_pytorch_is_left_as_it_was(recwarn: pytest.WarningsRecorder) -> None:
    before = torch.backends.quantized.engine
    QuantizedLinear(weight_of(9000))
    assert torch.backends.quantized.engine == before
    assert not recwarn.list


def test_builds_without_quantized_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(torch.backends.quantized), "supported_engines", ["none"])
    with pytest.raises(UserError, match=r"needs a PyTorch with quantized products, one of fbgemm, .* has none"):
        require_quantized_products()
    with pytest.raises(UserError, match="quantized products"):
        QuantizedLinear(weight_of(2))
