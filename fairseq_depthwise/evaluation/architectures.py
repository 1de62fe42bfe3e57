"""Architectures and models that are not trained: their options with defaults, and their sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from fairseq import options as fairseq_options
from fairseq import tasks
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_INV_REGISTRY, ARCH_MODEL_REGISTRY
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from fairseq_compat import UserError
from fairseq_compat.provenance import options_class
from fairseq_depthwise.checkpoints.sizes import build_without_memory
from fairseq_depthwise.models.base.model import StackModel
from fairseq_depthwise.models.linearized.model import ARCHITECTURE as LINEARIZED
from fairseq_depthwise.options import similar_option

#: Words of the vocabulary where no data says how many there are.
DEFAULT_WORDS = 32_000

#: Tokens of source and target of the sentence whose operations are counted.
SENTENCE = 32

#: A name for fairseq's parser, which requires a folder of data.
_NO_DATA = "no-data"


class Architecture(NamedTuple):
    """A value of ``--arch``, with a joint vocabulary of :data:`DEFAULT_WORDS` that all tables share."""

    name: str
    encoder_layers: int
    decoder_layers: int
    width: int
    parameters: int


class ModelSize(NamedTuple):
    """The size of a model.

    Attributes:
        architecture: its ``--arch``.
        words: the sizes of both vocabularies.
        parameters: the number of all its parameters; what is shared counts once.
        embeddings: how many of them are in embedding tables and in the output projection.
        operations: multiplications and additions of matrix products for a token of the target, in a forward pass over
            a sentence of :data:`SENTENCE` tokens in both languages; None for a model of fairseq's own.
    """

    architecture: str
    words: tuple[int, int]
    parameters: int
    embeddings: int
    operations: int | None


class ArchitectureOption(NamedTuple):
    """An option of an architecture, with its default there."""

    flag: str
    help: str
    default: Any


def is_ours(architecture: str) -> bool:
    """Return whether an architecture is one of this plugin's."""
    family = ARCH_MODEL_REGISTRY.get(architecture)
    return family is not None and (issubclass(family, StackModel) or architecture == LINEARIZED)


def our_architectures() -> Iterator[Architecture]:
    """Yield families and their presets, except for the family of the probe, whose models are made from others."""
    for names in ARCH_MODEL_INV_REGISTRY.values():
        for name in filter(is_ours, names):
            if name != LINEARIZED:
                options = SimpleNamespace(share_all_embeddings=True)
                ARCH_CONFIG_REGISTRY[name](options)
                model: Any = build_without_memory(
                    ARCH_MODEL_REGISTRY[name], vars(options), DEFAULT_WORDS, DEFAULT_WORDS
                )
                yield Architecture(
                    name,
                    encoder_layers=len(model.encoder.layers),
                    decoder_layers=len(model.decoder.layers),
                    width=options_class(name).complete(options).encoder_embed_dim,
                    parameters=_count(model),
                )


def options_of_architecture(architecture: str) -> Iterator[ArchitectureOption]:
    """Yield the options of one of our architectures."""
    defaults = SimpleNamespace()
    ARCH_CONFIG_REGISTRY[architecture](defaults)
    for option_field in fields(options_class(architecture)):
        if option_field.metadata.get("help"):
            default = getattr(defaults, option_field.name, option_field.default)
            flag = f"--{option_field.name.replace('_', '-')}"
            yield ArchitectureOption(flag, option_field.metadata["help"], default)


def measure_model(command: Sequence[str], words: int | None) -> ModelSize:
    """Return the size of the model that a command line of ``fairseq-train`` builds.

    Args:
        command: with ``--arch``; a folder of data is read for its dictionaries, options of the training are ignored.
        words: of both vocabularies; None for those of the data, or :data:`DEFAULT_WORDS`.

    Raises:
        UserError: the architecture or an option is not known.
    """
    options = _parse(command)
    if words is not None:
        sizes = (words, words)
    elif options.data != _NO_DATA:
        task = tasks.setup_task(options)
        sizes = (len(task.source_dictionary), len(task.target_dictionary))
    else:
        sizes = (DEFAULT_WORDS, DEFAULT_WORDS)

    model: Any = build_without_memory(ARCH_MODEL_REGISTRY[options.arch], vars(options), *sizes)
    counted = {id(parameter): parameter.numel() for parameter in model.parameters()}
    tables = {}
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2 and parameter.size(0) in sizes and ("embed" in name or "output_projection" in name):
            tables[id(parameter)] = parameter.numel()
    operations = _count_operations(model) if isinstance(model, StackModel) else None
    return ModelSize(options.arch, sizes, sum(counted.values()), sum(tables.values()), operations)


def _parse(command: Sequence[str]) -> Any:
    """Return the options of a command line of ``fairseq-train``, with the data that it names or :data:`_NO_DATA`."""
    parser = fairseq_options.get_training_parser()
    architecture = _value_of("--arch", command)
    if architecture is None:
        raise UserError("--arch is missing; name the architecture whose options are given")
    if architecture not in ARCH_MODEL_REGISTRY:
        raise UserError(
            f"--arch {architecture} is not known; `fairseq-depthwise train --list` lists those of the plugin"
        )
    options, rest = fairseq_options.parse_args_and_arch(parser, [_NO_DATA, *command], parse_known=True)
    for word in rest:
        if word.startswith("-"):
            similar = similar_option(word, parser._option_string_actions)
            hint = f"; did you mean {similar}?" if similar else f" of --arch {architecture}"
            raise UserError(f"{word} is not an option{hint}")
    if rest:
        options.data = rest[0]
    return options


def _value_of(flag: str, command: Sequence[str]) -> str | None:
    """Return the value of an option on a command line."""
    for word, following in zip(command, [*command[1:], None], strict=True):
        if word == flag:
            return following
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None


def _count(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _count_operations(model: StackModel) -> int:
    """Run a model that has no values, and return the operations of its matrix products for a token."""
    empty = model.to_empty(device="cpu").eval()
    tokens = torch.full((1, SENTENCE), empty.decoder.dictionary.unk())
    lengths = torch.tensor([SENTENCE])
    # The other kernels of attention are not counted on a CPU.
    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        empty(tokens, lengths, tokens)
    return round(counter.get_total_flops() / SENTENCE)
