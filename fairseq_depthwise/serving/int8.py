"""Models whose linear layers compute in 8 bits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fairseq.models import BaseFairseqModel
from fairseq.modules import MultiheadAttention
from fairseq.modules.quantization.scalar.modules import IntLinear
from torch import Tensor, nn

from fairseq_depthwise.modules.linear.batched import UnitLinear
from fairseq_depthwise.modules.linear.prepacked import JoinedLinear
from fairseq_depthwise.modules.linear.quantized import QuantizedLinear, QuantizedUnitLinear

_Product = QuantizedLinear | QuantizedUnitLinear


@dataclass(frozen=True)
class Quantization:
    """What became of models.

    Attributes:
        maps: linear layers that they have; one that several layers share counts once.
        quantized: those that compute in 8 bits.
        bytes_before: all their parameters.
        bytes_after: the same once weights are in 8 bits. Maps of the same input are one product, for which those that
            several layers share are kept once in each layer.
    """

    maps: int
    quantized: int
    bytes_before: int
    bytes_after: int

    def __str__(self) -> str:
        before, after = (number / 2**20 for number in (self.bytes_before, self.bytes_after))
        return f"int8: {self.quantized} of {self.maps} linear layers; {before:,.1f} MiB before, {after:,.1f} MiB after"


def quantize(models: Iterable[BaseFairseqModel]) -> Quantization:
    """Let all linear layers of models compute in 8 bits, on the CPU: in layers, and from features to the vocabulary.

    Layer norms, embeddings and everything else stay as they are, and so does a table that embedding and output
    projection share. The maps lose their own weights, so that nothing can compute from them unnoticed.

    Args:
        models: in evaluation mode, in float32, after fairseq's ``prepare_for_inference_``.

    Raises:
        UserError: this build of PyTorch has no quantized products.
    """
    modules = list(dict.fromkeys(module for model in models for module in model.modules()))
    before = _parameter_bytes(modules)
    linears = [
        module
        for module in modules
        if type(module).__name__.endswith("Linear") and not isinstance(module, JoinedLinear)
    ]
    products: dict[nn.Module, _Product] = {}
    # 1. Linear layers of one input, as the one product that they are at inference.
    done: set[Tensor] = set()
    for module in modules:
        if isinstance(module, JoinedLinear):
            products[module] = QuantizedLinear(module.weight, module.bias)
            done.update(linear.weight for linear in module.linears)
    # 2. All others.
    for linear in linears:
        if not _is_in(linear, done) and (product := _product_of(linear)) is not None:
            products[linear] = product
    # 3. Each in the place of what it stands for, whose weights go.
    quantized = [linear for linear in linears if linear in products or _is_in(linear, done)]
    for module in modules:
        for name, child in list(module.named_children()):
            if child in products:
                setattr(module, name, products[child])
        if isinstance(module, MultiheadAttention):
            module.skip_embed_dim_check = True  # fairseq's: or it reads the weights of its layers, and calls none
    for linear in quantized:
        linear.register_parameter("weight", None)
        linear.register_parameter("bias", None)
    after = _parameter_bytes(modules) + sum(product.bytes for product in products.values())
    return Quantization(len(linears), len(quantized), before, after)


def _is_in(linear: nn.Module, done: set[Tensor]) -> bool:
    return getattr(linear, "weight", None) in done


def _product_of(module: nn.Module) -> _Product | None:
    if isinstance(module, UnitLinear):
        return QuantizedUnitLinear(module)
    if isinstance(module, nn.Linear | IntLinear):
        return QuantizedLinear(module.weight, module.bias)
    return None


def _parameter_bytes(modules: Iterable[nn.Module]) -> int:
    """Of all parameters, shared ones once."""
    parameters = {parameter for module in modules for parameter in module.parameters(recurse=False)}
    return sum(parameter.numel() * parameter.element_size() for parameter in parameters)
