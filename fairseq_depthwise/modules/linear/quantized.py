"""Linear layers in int8, for inference on a CPU through PyTorch's own quantized products.

Weights w become ``round(w / s)`` between -127 and 127, with a scale ``s = max |w| / 127`` for each output. Inputs are
quantized anew in each call, to 256 steps between the least and the greatest of all the call's values, 0 among them:
what stands beside a sentence in its batch therefore has a small influence on it. Sums are whole numbers of 32 bits,
and outputs are float32.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_compat import UserError
from fairseq_depthwise.modules.linear.batched import UnitLinear

#: PyTorch's sets of quantized products, the fastest of few rows first; ``x86`` is another name of the first.
_ENGINES = ("fbgemm", "x86", "onednn", "qnnpack")

#: Outputs from which on oneDNN's product is faster: that of others spends its time on memory for intermediate sums.
_WIDE = 8192

#: What PyTorch 2.13 says of tensors in 8 bits, which its quantized products take their weights from.
_DEPRECATION = r"torch\.quantize_per_tensor, torch\.quantize_per_channel"


class QuantizedLinear(nn.Module):
    """``W x + b`` with W in 8 bits; computes without gradients, in float32.

    Args:
        weight: W, out x in.
        bias: b, out; kept in float32.

    Attributes:
        bytes: what it keeps in memory.

    Raises:
        UserError: this build of PyTorch has no quantized products.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        engine = _engine_for(weight.size(0))
        self._packed = _pack(weight.detach(), None if bias is None else bias.detach(), engine)
        self._reduce_range = _overflows(engine)
        # A byte for each weight; for each output a scale, a zero point, the sum of its weights, and the bias.
        self.bytes = weight.numel() + weight.size(0) * (12 + (0 if bias is None else 4))

    def forward(self, values: Tensor) -> Tensor:
        """Compute ... x out from ``values``, ... x in."""
        result: Tensor = torch.ops.quantized.linear_dynamic(values, self._packed, self._reduce_range)
        return result


class QuantizedUnitLinear(nn.Module):
    """The linear layers of several units in 8 bits; see :class:`~fairseq_depthwise.modules.linear.batched.UnitLinear`.

    Args:
        linear: the layers.

    Attributes:
        bytes: what it keeps in memory.
    """

    def __init__(self, linear: UnitLinear) -> None:
        super().__init__()
        self._units = [
            QuantizedLinear(weight.T, bias)
            for weight, bias in zip(linear.weight.detach(), linear.bias.detach(), strict=True)
        ]
        self.bytes = sum(unit.bytes for unit in self._units)

    def forward(self, values: Tensor) -> Tensor:
        """Compute U x T x B x out from U x T x B x in."""
        if len(self._units) == 1:
            result: Tensor = self._units[0](values)
            return result
        inputs = values.expand(len(self._units), -1, -1, -1)
        return torch.stack([unit(own) for unit, own in zip(self._units, inputs, strict=True)])


def require_quantized_products() -> None:
    """Raises UserError where this build of PyTorch has no quantized products."""
    supported = torch.backends.quantized.supported_engines
    if not set(_ENGINES) & set(supported) or not hasattr(torch.ops.quantized, "linear_dynamic"):
        raise UserError(
            f"int8 needs a PyTorch with quantized products, one of {', '.join(_ENGINES)}; PyTorch {torch.__version__} "
            f"has {', '.join(supported) or 'none'}"
        )


def _engine_for(outputs: int) -> str:
    require_quantized_products()
    supported = torch.backends.quantized.supported_engines
    if outputs >= _WIDE and "onednn" in supported:
        return "onednn"
    return next(one for one in _ENGINES if one in supported)


def _pack(weight: Tensor, bias: Tensor | None, engine: str) -> Any:
    """Quantized weights in the layout of an engine."""
    weight = weight.float()
    scales = (weight.abs().amax(dim=1) / 127).clamp(min=torch.finfo(torch.float32).tiny)
    with _engine(engine), warnings.catch_warnings():
        warnings.filterwarnings("ignore", _DEPRECATION)
        zeros = torch.zeros(len(weight), dtype=torch.long)
        quantized = torch.quantize_per_channel(weight.contiguous(), scales.double(), zeros, 0, torch.qint8)
        return torch.ops.quantized.linear_prepack(quantized, None if bias is None else bias.float())


@contextmanager
def _engine(name: str) -> Iterator[None]:
    """Within, PyTorch lays out weights for this engine; they know it from then on."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = name
    try:
        yield
    finally:
        torch.backends.quantized.engine = before


@functools.cache
def _overflows(engine: str) -> bool:
    """Whether inputs must do with 7 bits.

    Processors without instructions for it add pairs of products in 16 bits, where the largest pairs have no room.
    """
    largest = _pack(torch.ones(16, 64), None, engine)
    found: Tensor = torch.ops.quantized.linear_dynamic(torch.ones(1, 64), largest, False)
    return bool(found.min() < 63)
