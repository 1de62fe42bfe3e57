"""Linear layers whose weights are packed once for inference."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: Number of rows that the layout is optimized for: the hypotheses of some sentences in a step of a beam search.
_ROWS = 64

#: Up to this number of multiplications an ordinary float32 product is not slower: a call of oneDNN's costs 10 us.
_LITTLE_WORK = 2**18


def can_pack(*linears: nn.Module) -> bool:
    """Return whether these are plain linear layers without hooks; subclasses and hooks must be called themselves."""
    for linear in linears:
        has_hooks = linear._forward_pre_hooks or linear._forward_hooks
        if type(linear) not in (nn.Linear, PrepackedLinear) or has_hooks:
            return False
    return True


def prepack(owner: nn.Module, *names: str) -> None:
    """Replace the named linear layers of a module by prepacked ones, where that is possible."""
    for name in names:
        linear = getattr(owner, name)
        if type(linear) is nn.Linear and can_pack(linear):
            setattr(owner, name, PrepackedLinear(linear))


def join(*linears: nn.Linear) -> JoinedLinear | None:
    """Join linear layers of the same input into one; return None if one of them must be called itself."""
    return JoinedLinear(*linears) if can_pack(*linears) else None


class PrepackedLinear(nn.Linear):
    """A linear layer that replaces another, with the same parameters, and has a packed copy of them for inference.

    On a CPU the copy has the blocked layout that oneDNN reads, which is faster for products of few rows, such as in a
    step of a beam search.
    """

    def __init__(self, linear: nn.Linear) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight = linear.weight
        self.register_parameter("bias", cast("nn.Parameter | None", linear.bias))
        self.train(linear.training)
        self._packed_from: list[object] = []

    def forward(self, values: Tensor) -> Tensor:
        """Compute ... x out from ``values``, ... x in."""
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            return F.linear(values, self.weight, self.bias)
        versions = _tensor_versions(self)
        if versions != self._packed_from:
            self._product = _product(self.weight, self.bias)
            self._packed_from = versions
        return self._product(values)


class JoinedLinear(nn.Module):
    """Linear layers of the same input, all with biases or all without, as one product, for inference.

    The layers keep their weights; when these change or move, they are joined again.
    """

    weight: Tensor
    bias: Tensor | None

    def __init__(self, *linears: nn.Linear) -> None:
        super().__init__()
        self.linears = linears  # a tuple: their parameters are not this module's
        self._joined_from: list[object] = []
        self.register_buffer("weight", None, persistent=False)
        self.register_buffer("bias", None, persistent=False)
        self._refresh()

    def _refresh(self) -> None:
        """Join the weights, if they have changed since the last time."""
        versions = _tensor_versions(*self.linears)
        if versions == self._joined_from:
            return
        with torch.no_grad():
            weights: list[Tensor] = [linear.weight for linear in self.linears]
            self.weight = torch.cat(weights)
            biases: list[Tensor] = [linear.bias for linear in self.linears if linear.bias is not None]
            self.bias = torch.cat(biases) if biases else None
        self._product = _product(self.weight, self.bias)
        self._joined_from = versions

    def forward(self, values: Tensor) -> Tensor:
        """Compute the outputs of all layers, side by side, ... x (sum of out), from ``values``, ... x in."""
        if torch.compiler.is_compiling():
            return F.linear(values, self.weight, self.bias)
        if torch.is_grad_enabled():
            return torch.cat([F.linear(values, linear.weight, linear.bias) for linear in self.linears], dim=-1)
        self._refresh()
        return self._product(values)


def _tensor_versions(*linears: nn.Linear) -> list[object]:
    """Return values that change when a weight or bias is replaced, moved, cast or written to."""
    versions: list[object] = []
    for linear in linears:
        # Access by attribute takes PyTorch longer, and this is called in every step of a search.
        for tensor in linear._parameters.values():
            if tensor is not None:
                version = 0 if tensor.is_inference() else tensor._version
                versions.append((tensor.data_ptr(), tensor.dtype, tensor.device, version))
    return versions


@torch.no_grad()
def _product(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    """Return the product with ``weight`` (out x in) and ``bias`` (out), in oneDNN's blocked layout where it is faster.

    PyTorch's compiler uses the two operators for frozen weights. They are not documented, so they are tried once;
    without them an ordinary product is used.
    """
    if weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.bfloat16):
        return lambda values: F.linear(values, weight, bias)
    try:
        blocked = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _ROWS)

        def product(values: Tensor) -> Tensor:
            result: Tensor = torch.ops.mkldnn._linear_pointwise(values, blocked, bias, "none", [], "")
            return result

        product(weight.new_zeros(1, 1, weight.size(1)))
    except (AttributeError, RuntimeError):  # a build without the operators, or without them for this processor
        return lambda values: F.linear(values, weight, bias)
    if weight.dtype != torch.float32 or weight.numel() > _LITTLE_WORK:
        return product
    # values.numel() times the layer's outputs is the number of multiplications.
    little = _LITTLE_WORK // weight.size(0)
    return lambda values: product(values) if values.numel() > little else F.linear(values, weight, bias)
