"""Models whose linear layers compute in 8 bits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fairseq.models import BaseFairseqModel
from fairseq.modules import MultiheadAttention
from fairseq.modules.quantization.scalar.modules import IntLinear
from torch import nn

from fairseq_depthwise.modules.linear.batched import UnitLinear
from fairseq_depthwise.modules.linear.prepacked import PackedLinear
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
    # 1. Products that were to be laid out for inference: of several maps, and of one that is in no other product.
    products: list[_Product] = []
    done: set[nn.Module] = set()
    laid_out = [(vars(module), *item) for module in modules for item in vars(module).items()]
    found = [(owner, name, value) for owner, name, value in laid_out if isinstance(value, PackedLinear)]
    for owner, name, packed in sorted(found, key=lambda one: -len(one[2].maps)):
        if len(packed.maps) == 1 and packed.maps[0] in done:
            del owner[name]
            continue
        owner[name] = QuantizedLinear.of(packed.maps)
        products.append(owner[name])
        done.update(packed.maps)
    # 2. All other maps.
    for module in modules:
        if module not in done and (product := _product_of(module)) is not None:
            vars(module)["forward"] = product  # of this object only, beside the class's
            products.append(product)
            done.add(module)
    # 3. Their own weights.
    for module in modules:
        if module in done:
            module.register_parameter("weight", None)
            module.register_parameter("bias", None)
        elif isinstance(module, MultiheadAttention):
            module.skip_embed_dim_check = True  # fairseq's: or it reads the weights of its maps, and calls none
    maps = sum(type(module).__name__.endswith("Linear") for module in modules)
    after = _parameter_bytes(modules) + sum(product.bytes for product in products)
    return Quantization(maps, len(done), before, after)


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
