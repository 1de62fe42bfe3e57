"""Linear layers whose weights are laid out once for inference."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: Rows that the layout is chosen for: the hypotheses of some sentences, which is what a step of a beam search feeds.
_ROWS = 64

#: Multiplications up to which a float32 product is no slower in the ordinary way: oneDNN's takes 10 us to begin.
_LITTLE_WORK = 2**18


def packable(*maps: nn.Module) -> bool:
    """Whether these are plain linear layers: quantized ones, noisy ones, and ones with hooks have to be called."""
    return all(
        type(one) is nn.Linear
        and not one._forward_pre_hooks
        and not one._forward_hooks
        and isinstance(vars(one).get("forward"), (PackedLinear, type(None)))
        for one in maps
    )


def pack(linear: nn.Module) -> None:
    """Let a linear layer compute from packed weights while no gradients are asked for; others stay as they are."""
    if isinstance(linear, nn.Linear) and packable(linear):
        vars(linear)["forward"] = PackedLinear(linear)  # of this object only, beside the class's


def pack_together(*maps: nn.Module) -> PackedLinear | None:
    """Linear layers of one input as one product; None where one of them must be called itself."""
    return PackedLinear(*maps) if packable(*maps) else None


class PackedLinear:
    """Linear layers of the same input as one product, for inference.

    The weights are stacked, and on a CPU stored in the blocks that oneDNN's products read, which makes products of
    few rows, such as a step of a beam search consists of, faster. The maps keep their own
    weights; when those change, or move, they are packed again.

    Args:
        maps: linear layers with the same input width, all with biases or all without.
    """

    def __init__(self, *maps: nn.Module) -> None:
        self.maps = [one for one in maps if isinstance(one, nn.Linear)]
        self._packed_from: tuple[object, ...] = ()
        self._product: Callable[[Tensor], Tensor] = torch.Tensor.clone

    def __call__(self, values: Tensor) -> Tensor:
        """``values``, ... x in, to ... x (sum of the maps' out), one map after the other."""
        if torch.is_grad_enabled():
            return torch.cat([F.linear(values, one.weight, one.bias) for one in self.maps], dim=-1)
        now = tuple(_identity(tensor) for one in self.maps for tensor in (one.weight, one.bias) if tensor is not None)
        if now != self._packed_from:
            self._pack()
            self._packed_from = now
        return self._product(values)

    def _pack(self) -> None:
        with torch.no_grad():
            weight = (
                torch.cat([one.weight.detach() for one in self.maps]) if len(self.maps) > 1 else self.maps[0].weight
            )
            biases = [one.bias.detach() for one in self.maps if one.bias is not None]
            bias = torch.cat(biases) if biases else None
            self._product = _blocked_product(weight, bias) or (lambda values: F.linear(values, weight, bias))


def _identity(tensor: Tensor) -> tuple[object, ...]:
    """Differs where the tensor was replaced, moved, cast or written to."""
    return tensor.data_ptr(), tensor.dtype, tensor.device, 0 if tensor.is_inference() else tensor._version


def _blocked_product(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor] | None:
    """The product through oneDNN's blocked layout, or None where this build of PyTorch does not offer it.

    The two operators are those that PyTorch's compiler uses for frozen weights; they are not documented, so a trial
    decides, and without them an ordinary product does the work.
    """
    if weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.bfloat16):
        return None
    try:
        blocked = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _ROWS)

        def product(values: Tensor) -> Tensor:
            result: Tensor = torch.ops.mkldnn._linear_pointwise(values, blocked, bias, "none", [], "")
            return result

        product(weight.new_zeros(1, 1, weight.size(1)))
    except (AttributeError, RuntimeError):  # a build without the operators, or without them for this processor
        return None
    if weight.dtype != torch.float32 or weight.numel() > _LITTLE_WORK:
        return product
    most = _LITTLE_WORK // weight.size(0)
    return lambda values: product(values) if values.numel() > most else F.linear(values, weight, bias)
