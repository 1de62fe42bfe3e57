"""Options that every model family of this plugin has, and the check of their values.

The configuration is flat: a field ``encoder_layers`` is the option ``--encoder-layers`` on the command line,
``model.encoder_layers`` in a hydra file, and ``cfg.model.encoder_layers`` in a checkpoint.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Optional, TypeVar

from fairseq.dataclass import FairseqDataclass
from fairseq.models import register_model_architecture

from fairseq_compat import UserError

Config = TypeVar("Config", bound="EncoderDecoderConfig")


#: A limit of numbers, as messages call it -> whether a value keeps it.
_LIMITS: dict[str, Callable[[Any, Any], bool]] = {"at least": operator.ge, "below": operator.lt, "at most": operator.le}


def option(
    default: Any,
    help: str,
    *,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
    one_of: tuple[Any, ...] | None = None,
    bare: str | None = None,
    changes_parameters: bool = True,
    addable: bool = False,
    options_of_model: bool = False,
) -> Any:
    """Return a configuration field whose value is checked before a model is built.

    Args:
        default: its value unless the user sets it.
        help: for the command line.
        at_least, below, at_most: limits of a number.
        one_of: the only values.
        bare: the value of the option without a value on the command line.
        changes_parameters: False if trained parameters mean the same with another value.
        addable: a model may have this part although the model that it starts from has not (value 0).
        options_of_model: the value is JSON, the options of a model within this one.
    """
    all_limits = {"at least": at_least, "below": below, "at most": at_most}
    limits = {name: number for name, number in all_limits.items() if number is not None}
    allowed = f"one of {', '.join(map(str, one_of))}" if one_of else _describe_limits(limits)
    metadata = {
        "help": f"{help} ({allowed})" if allowed else help,
        "limits": limits,
        "one_of": one_of,
        "argparse_const": bare,
        "changes_parameters": changes_parameters,
        "addable": addable,
        "options_of_model": options_of_model,
    }
    return field(default=default, metadata=metadata)


def _describe_limits(limits: Mapping[str, float]) -> str:
    return " and ".join(f"{name} {number:g}" for name, number in limits.items())


def probability(default: float, help: str) -> Any:
    """Return an option from 0 to below 1 that does not change what trained parameters mean, such as a dropout."""
    return option(default, help, at_least=0, below=1, changes_parameters=False)


def positions(help: str) -> Any:
    """Return an option that is a number of positions."""
    return option(1024, help, at_least=1, at_most=2**24, changes_parameters=False)


def distance(default: int) -> Any:
    """Return the option ``--max-relative-positions``."""
    help_text = "relative positions in every self-attention up to this distance; 0 = none"
    return option(default, help_text, at_least=0, at_most=2**16, addable=True)


#: Option of earlier versions -> value that they recorded in checkpoints -> what takes its place. An option that is gone
#: has no effect: its values are not read, and command lines may have it.
RETIRED: dict[str, dict[Any, Any]] = {
    "depthwise_kernel": {},
    "hyper_manifold": {"True": "sinkhorn", True: "sinkhorn", "False": "none", False: "none"},
}

#: Options of fairseq's models that ours do not have, but checkpoints of these may record.
_FAIRSEQ_ONLY = ("adaptive_softmax_cutoff", "quant_noise_pq", "quant_noise_scalar")


# fairseq reads these annotations at run time: no `from __future__ import annotations` here, and Optional[...] because
# it does not know "... | None".
@dataclass
class EncoderDecoderConfig(FairseqDataclass):
    """Sizes, dropouts, embeddings and positions of an encoder-decoder."""

    retired = RETIRED  # not annotated: fairseq takes ClassVar for an option

    # Sizes of both stacks.
    encoder_embed_dim: int = option(512, "width of the encoder", at_least=2, at_most=2**20)
    encoder_layers: int = option(6, "number of encoder layers", at_least=1, at_most=10_000)
    encoder_attention_heads: int = option(8, "number of attention heads in the encoder", at_least=1)
    decoder_embed_dim: int = option(512, "width of the decoder; must equal the encoder's", at_least=2, at_most=2**20)
    decoder_layers: int = option(6, "number of decoder layers", at_least=1, at_most=10_000)
    decoder_attention_heads: int = option(8, "number of attention heads in the decoder", at_least=1)

    # Dropout.
    dropout: float = probability(0.1, "dropout of embeddings and sub-layer outputs")
    attention_dropout: float = probability(0.0, "dropout of attention weights")
    activation_dropout: float = probability(0.0, "dropout inside the hidden or feed-forward nets")

    # Embedding tables.
    share_decoder_input_output_embed: bool = option(False, "the output projection is the decoder's embedding table")
    share_all_embeddings: bool = option(False, "one table for encoder, decoder and output (joined dictionary)")
    encoder_embed_path: Optional[str] = option(  # noqa: UP045  # see above the class
        None, "pre-trained encoder embeddings, a text file", changes_parameters=False
    )
    decoder_embed_path: Optional[str] = option(  # noqa: UP045  # see above the class
        None, "pre-trained decoder embeddings, a text file", changes_parameters=False
    )

    # Absolute positions.
    max_source_positions: int = positions("longest source sentence in tokens")
    max_target_positions: int = positions("longest target sentence in tokens")
    encoder_learned_pos: bool = option(False, "learned positions in the encoder instead of sinusoids")
    decoder_learned_pos: bool = option(False, "learned positions in the decoder instead of sinusoids")
    no_token_positional_embeddings: bool = option(False, "no absolute positions")
    no_scale_embedding: bool = option(False, "do not multiply embeddings by the square root of the width")

    # Relative positions (Shaw et al. 2018).
    max_relative_positions: int = distance(0)
    relative_position_terms: str = option(
        "key", "what relative positions act on: keys, or keys and values", one_of=("key", "key-value")
    )

    # Training of deep stacks.
    encoder_layerdrop: float = probability(0.0, "probability of skipping an encoder layer in training")
    decoder_layerdrop: float = probability(0.0, "probability of skipping a decoder layer in training")
    checkpoint_activations: bool = option(
        False, "recompute each layer in the backward pass to save memory", changes_parameters=False
    )

    @classmethod
    def complete(cls: type[Config], options: Any) -> Config:
        """Return an instance with the values of ``options`` where it has them, checked, and the defaults elsewhere.

        ``options`` is what fairseq passes to ``build_model``, perhaps from a checkpoint that an older version wrote.
        """
        for name in _FAIRSEQ_ONLY:
            value = getattr(options, name, None)
            if value:
                raise UserError(
                    f"--{name.replace('_', '-')} {value}: {cls.__name__.removesuffix('Config')} has none; fairseq's "
                    "own transformer has"
                )

        values: dict[str, Any] = {}
        for option_field in fields(cls):
            value = getattr(options, option_field.name, None)
            if value is None:
                value = option_field.default
            replacements = RETIRED.get(option_field.name, {})
            values[option_field.name] = replacements.get(value, value) if replacements else value

        config = cls(**values)
        check_values(cls, config)
        config.check()
        return config

    def check(self) -> None:
        """Raise :class:`UserError` where values contradict each other; families add their own checks."""
        for side in ("encoder", "decoder"):
            width = getattr(self, f"{side}_embed_dim")
            heads = getattr(self, f"{side}_attention_heads")
            if width % heads:
                raise UserError(f"--{side}-attention-heads {heads} does not divide --{side}-embed-dim {width}")
        if self.encoder_embed_dim != self.decoder_embed_dim:
            raise UserError(
                f"--encoder-embed-dim {self.encoder_embed_dim} and --decoder-embed-dim {self.decoder_embed_dim} "
                "differ; the decoder attends to the encoder's output, so give both the same width"
            )
        if self.share_all_embeddings and self.decoder_embed_path not in (None, self.encoder_embed_path):
            raise UserError(
                f"--decoder-embed-path {self.decoder_embed_path} contradicts --share-all-embeddings; "
                "give the one table with --encoder-embed-path"
            )

    def require_defaults(self, names: Sequence[str], reason: str) -> None:
        """Raise :class:`UserError` if one of these options is not at its default; ``reason``: why it has no effect."""
        for option_field in fields(self):
            value = getattr(self, option_field.name)
            if option_field.name in names and value != option_field.default:
                option_text = f"--{option_field.name.replace('_', '-')}"
                if value is not True:
                    option_text += f" {value}"
                raise UserError(f"{option_text} {reason}")


def check_values(dataclass_of_options: Any, values: Any) -> None:
    """Raise :class:`UserError` if a value (an attribute) is not one that the dataclass's :func:`option` allows."""
    for option_field in fields(dataclass_of_options):
        name = option_field.name.replace("_", "-")
        value = getattr(values, option_field.name)
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"--{name} {value} is out of range; it must be finite")

        limits = option_field.metadata.get("limits", {})
        for limit, number in limits.items():
            if value is not None and not _LIMITS[limit](value, number):
                raise UserError(f"--{name} {value} is out of range; it must be {_describe_limits(limits)}")

        one_of = option_field.metadata.get("one_of")
        if one_of and value not in one_of:
            raise UserError(f"--{name} {value} is not a choice; it must be one of {', '.join(map(str, one_of))}")


def both_sides(**sizes: int) -> dict[str, int]:
    """Turn ``embed_dim=512`` into the options ``encoder_embed_dim`` and ``decoder_embed_dim``."""
    options: dict[str, int] = {}
    for side in ("encoder", "decoder"):
        for name, value in sizes.items():
            options[f"{side}_{name}"] = value
    return options


#: Presets of every family: deep encoders with shallow decoders, which decode faster at the same quality (Kasai et al.,
#: 2021).
DEEP_SHALLOW = {
    f"wmt_en_de_{encoder}l_{decoder}l": {"encoder_layers": encoder, "decoder_layers": decoder}
    for encoder, decoder in ((12, 1), (24, 2))
}


def register_presets(model: str, presets: Mapping[str, Mapping[str, Any]]) -> None:
    """Register ``--arch MODEL_NAME`` for each preset, which sets these defaults and nothing else.

    The command line can override each of them, and the checkpoint records the values.
    """

    def setter(defaults: Mapping[str, Any]) -> Callable[[Any], None]:
        def set_defaults(args: Any) -> None:
            for name, value in defaults.items():
                if getattr(args, name, None) is None:
                    setattr(args, name, value)

        return set_defaults

    # Each setter has its own ``defaults``; a closure in this loop would see the last ones only.
    for name, defaults in presets.items():
        register_model_architecture(model, f"{model}_{name}")(setter(defaults))
