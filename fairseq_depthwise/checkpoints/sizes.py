"""Depth and number of parameters of a model, from a checkpoint or an architecture."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY, BaseFairseqModel
from fairseq.models.transformer import TransformerModel
from torch import Tensor, nn

from fairseq_depthwise import register_with_fairseq
from fairseq_depthwise.checkpoints.fairseq_transformer import is_unused_copy
from fairseq_depthwise.models.base.model import StackModel
from fairseq_depthwise.models.base.vocabulary import placeholder_dictionary

StateDict = Mapping[str, Tensor]

_LAYER = re.compile(r"(encoder|decoder)\.layers\.(\d+)\..+")

#: The tables of a family's model and of a stock Transformer, without the side.
_TABLES = ("embedding.tokens.weight", "embed_tokens.weight")


class ParameterCount(NamedTuple):
    """Sizes of a model in a checkpoint: tied parameters count once; copies that stock fairseq never reads are separate.

    ``ties_known`` is False if only the file shows what is tied. A file written on a GPU or in half precision has
    separate tensors for tied parameters, which are then counted separately.
    """

    parameters: int
    unused_copies: int
    ties_known: bool


def depths_in(names: Iterable[str]) -> dict[str, int]:
    """Return the number of layers of each side that has layers, by the names of a model's parameters."""
    layers: dict[str, set[str]] = {}
    for name in names:
        if match := _LAYER.fullmatch(name):
            layers.setdefault(match[1], set()).add(match[2])
    return {side: len(layers[side]) for side in ("encoder", "decoder") if side in layers}


def first_of_each_memory(values: StateDict) -> dict[str, str]:
    """Return each name -> the first name whose tensor has the same memory."""
    names_of_memory: dict[tuple[Any, ...], str] = {}
    first_names: dict[str, str] = {}
    for name, tensor in values.items():
        if tensor.numel() == 0:  # has no memory
            first_names[name] = name
        else:
            # Different views of one storage, such as a transpose, are different tensors.
            memory = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
            first_names[name] = names_of_memory.setdefault(memory, name)
    return first_names


def count_parameters(values: StateDict, options: Mapping[str, Any]) -> ParameterCount:
    """Count the parameters of a model in a checkpoint; no tensor is read.

    Which of them are tied is known from the model that its options build, whatever the file has.
    """
    first_names = _first_of_each_parameter(values, options)
    ties_known = first_names is not None
    # One name per parameter; it does not matter which.
    distinct = {first: name for name, first in (first_names or first_of_each_memory(values)).items()}
    parameters = unused_copies = 0
    for name in distinct.values():
        if is_unused_copy(name):
            unused_copies += values[name].numel()
        else:
            parameters += values[name].numel()
    return ParameterCount(parameters, unused_copies, ties_known)


def family_of(arch: str | None) -> type[BaseFairseqModel] | None:
    """Return the class of an architecture's models; None if it is not registered."""
    register_with_fairseq()  # a program may have imported nothing but this module
    return ARCH_MODEL_REGISTRY.get(arch) or MODEL_REGISTRY.get(arch)


def build_with_words(
    family: type[BaseFairseqModel], options: Mapping[str, Any], source_words: int, target_words: int
) -> Any:
    """Build a model for dictionaries of which only the sizes matter; for equal sizes they are one dictionary."""
    source, target = placeholder_dictionary(source_words), placeholder_dictionary(target_words)
    task = SimpleNamespace(source_dictionary=source, target_dictionary=target)
    return family.build_model(SimpleNamespace(**options), task)


def build_without_memory(
    family: type[BaseFairseqModel], options: Mapping[str, Any], source_words: int, target_words: int
) -> nn.Module:
    """Build a model like :func:`build_with_words`, whose parameters have shapes but no values."""
    with torch.device("meta"):
        model: nn.Module = build_with_words(family, options, source_words, target_words)
    return model


def _first_of_each_parameter(values: StateDict, options: Mapping[str, Any]) -> dict[str, str] | None:
    """Return each parameter's name in a checkpoint -> its first name in the model; None if that cannot be built."""
    family = family_of(options.get("_name") or options.get("arch"))
    if family is None or not (issubclass(family, StackModel) or family is TransformerModel):
        return None
    words = []
    for side in ("encoder", "decoder"):
        words += [values[f"{side}.{table}"].size(0) for table in _TABLES if f"{side}.{table}" in values]
    if len(words) != 2:
        return None
    # Files of pretrained embeddings may be gone, and only sizes matter here.
    built_options = {**options, "encoder_embed_path": None, "decoder_embed_path": None}
    for side, layers in depths_in(values).items():
        built_options[f"{side}_layers"] = layers
    try:
        model = build_without_memory(family, built_options, *words)
    except Exception:  # options of another version, for which a model's code may raise anything
        return None
    # In a model, tied parameters are one object.
    first_names: dict[int, str] = {}
    return {
        name: first_names.setdefault(id(parameter), name)
        for name, parameter in model.named_parameters(remove_duplicate=False)
        if name in values
    }
