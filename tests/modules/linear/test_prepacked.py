"""Packed linear layers are the maps they are made of, whatever happens to those."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from fairseq.modules.quantization.scalar.modules import IntLinear
from torch import Tensor, nn

from fairseq_depthwise.modules.linear.prepacked import can_pack, join, prepack

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float64: 1e-12, torch.float16: 2e-3}
every_dtype = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)


def maps(*widths: int, bias: bool = False, dtype: torch.dtype = torch.float32) -> list[nn.Linear]:
    """Linear layers from 24 values to so many each."""
    torch.manual_seed(1)
    return [nn.Linear(24, width, bias=bias, dtype=dtype) for width in widths]


def prepacked(linear: nn.Module) -> Any:
    """What stands in its place in a module that was made ready for inference."""
    owner = nn.Module()
    owner.linear = linear
    prepack(owner, "linear")
    return owner.linear


def values(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, 24, generator=torch.Generator().manual_seed(2)).to(dtype)


def assert_near(found: Tensor, expected: Tensor) -> None:
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    tolerance = TOLERANCE[expected.dtype]
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def read(linears: list[nn.Linear], inputs: Tensor) -> Tensor:
    """Each map by itself, in double precision."""
    parts = []
    for one in linears:
        product = inputs.double() @ one.weight.detach().double().T
        parts.append(product if one.bias is None else product + one.bias.detach().double())
    return torch.cat(parts, dim=-1).to(inputs.dtype)


@every_dtype
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("widths", [(16,), (12, 8, 12)], ids=str)
@pytest.mark.parametrize("shape", [(1,), (2, 3, 5), (200,)], ids=str)
def test_one_product_is_all_maps(
    dtype: torch.dtype, bias: bool, widths: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    linears = maps(*widths, bias=bias, dtype=dtype)
    packed = join(*linears)
    assert packed is not None
    inputs = values(*shape, dtype=dtype)
    with torch.no_grad():
        assert_near(packed(inputs), read(linears, inputs))
        assert_near(packed(inputs), read(linears, inputs))
    with torch.inference_mode():
        assert_near(packed(inputs), read(linears, inputs))


# --- weights that change ---------------------------------------------------------------------------------------------


CHANGES: dict[str, Callable[[nn.Linear], Any]] = {
    "in place": lambda linear: linear.weight.mul_(-3),
    "bias in place": lambda linear: linear.bias.add_(5),
    "through data": lambda linear: setattr(linear.weight, "data", torch.randn_like(linear.weight)),
    "another parameter": lambda linear: setattr(linear, "weight", nn.Parameter(torch.randn_like(linear.weight))),
    "loaded": lambda linear: linear.load_state_dict(nn.Linear(24, linear.out_features).state_dict()),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_weights_that_change_are_packed_again(change: Callable[[nn.Linear], Any], dtype: torch.dtype) -> None:
    linears = maps(16, 8, bias=True, dtype=dtype)
    linears[0] = prepacked(linears[0])
    together = join(*linears)
    assert together is not None
    inputs = values(5, dtype=dtype)
    with torch.no_grad():
        before = together(inputs), linears[0](inputs)
        change(linears[0])
        assert not torch.equal(together(inputs), before[0])
        assert_near(together(inputs), read(linears, inputs))
        assert_near(linears[0](inputs), read(linears[:1], inputs))


# --- maps that must be called themselves -----------------------------------------------------------------------------


class OwnLinear(nn.Linear):
    pass


def hooked(before: bool) -> nn.Linear:
    linear = nn.Linear(24, 8)
    register = linear.register_forward_pre_hook if before else linear.register_forward_hook
    register(lambda *_: None)
    return linear


@pytest.mark.parametrize(
    "special",
    [hooked(True), hooked(False), OwnLinear(24, 8), IntLinear(24, 8), nn.LayerNorm(24)],
    ids=["hook before", "hook after", "subclass", "quantized", "no linear layer"],
)
def test_maps_with_a_computation_of_their_own_are_left_alone(special: nn.Module) -> None:
    assert prepacked(special) is special
    assert not can_pack(special)
    assert join(*maps(8), special) is None
