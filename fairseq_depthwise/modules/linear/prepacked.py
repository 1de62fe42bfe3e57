"""Linear layers whose weights are laid out once for inference."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: Rows that the layout is chosen for: the hypotheses of some sentences, which is what a step of a beam search feeds.
_ROWS = 64

#: Multiplications up to which a float32 product is no slower in the ordinary way: oneDNN's takes 10 us to begin.
_LITTLE_WORK = 2**18


def packable(*linears: nn.Module) -> bool:
    """Return whether these are plain linear layers: noisy ones and ones with hooks have to be called."""
    return all(
        type(linear) in (nn.Linear, PrepackedLinear) and not linear._forward_pre_hooks and not linear._forward_hooks
        for linear in linears
    )


def prepack(owner: nn.Module, *names: str) -> None:
    """Let these linear layers of a module compute from packed weights at inference; others stay as they are."""
    for name in names:
        linear = getattr(owner, name)
        if type(linear) is nn.Linear and packable(linear):
            setattr(owner, name, PrepackedLinear(linear))


def join(*linears: nn.Linear) -> JoinedLinear | None:
    """Return linear layers of one input as one product; None where one of them must be called itself."""
    return JoinedLinear(*linears) if packable(*linears) else None


class PrepackedLinear(nn.Linear):
    """A linear layer that stands for another, with the same parameters, and keeps a packed copy for inference.

    On a CPU the copy is in the blocks that oneDNN's products read, which makes products of few rows, such as a step of
    a beam search consists of, faster.
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
        now = _identities(self)
        if now != self._packed_from:
            self._product, self._packed_from = _product(self.weight, self.bias), now
        return self._product(values)


class JoinedLinear(nn.Module):
    """Linear layers of the same input, all with biases or all without, as one product, for inference.

    The layers keep their own weights; when those change, or move, they are joined again.
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
        """Join the weights, if they have changed since."""
        now = _identities(*self.linears)
        if now == self._joined_from:
            return
        with torch.no_grad():
            weights: list[Tensor] = [linear.weight for linear in self.linears]
            self.weight = torch.cat(weights)
            biases: list[Tensor] = [linear.bias for linear in self.linears if linear.bias is not None]
            self.bias = torch.cat(biases) if biases else None
        self._product, self._joined_from = _product(self.weight, self.bias), now

    def forward(self, values: Tensor) -> Tensor:
        """Compute ... x (sum of the layers' out), one layer after the other, from ``values``, ... x in."""
        if torch.compiler.is_compiling():
            return F.linear(values, self.weight, self.bias)
        if torch.is_grad_enabled():
            return torch.cat([F.linear(values, linear.weight, linear.bias) for linear in self.linears], dim=-1)
        self._refresh()
        return self._product(values)


def _identities(*linears: nn.Linear) -> list[object]:
    """Return what differs where a weight or bias was replaced, moved, cast or written to."""
    return [
        (tensor.data_ptr(), tensor.dtype, tensor.device, 0 if tensor.is_inference() else tensor._version)
        for linear in linears
        for tensor in linear._parameters.values()  # attributes take PyTorch longer, in every step of a search
        if tensor is not None
    ]


@torch.no_grad()
def _product(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    """Return the product with ``weight`` (out x in) and ``bias`` (out), in oneDNN's blocked layout where it is faster.

    The two operators are those that PyTorch's compiler uses for frozen weights; they are not documented, so a trial
    decides, and without them an ordinary product does the work.
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
    most = _LITTLE_WORK // weight.size(0)
    return lambda values: product(values) if values.numel() > most else F.linear(values, weight, bias)
