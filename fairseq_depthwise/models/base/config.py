"""Options that every model family of this plugin has, and the check of their values.

The configuration is flat: a field ``encoder_layers`` is the option ``--encoder-layers`` on the command line,
``model.encoder_layers`` in a hydra file, and ``cfg.model.encoder_layers`` in a checkpoint.
"""

import math
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, Optional, TypeVar, get_args

from fairseq.dataclass import FairseqDataclass
from fairseq.models import register_model_architecture

from fairseq_compat import UserError

Config = TypeVar("Config", bound="EncoderDecoderConfig")


def _range_in_words(at_least: float | None, below: float | None, at_most: float | None) -> str:
    words = {"at least": at_least, "below": below, "at most": at_most}
    return " and ".join(f"{word} {number:g}" for word, number in words.items() if number is not None)


def option(
    default: Any,
    help: str,
    *,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
    one_of: tuple[Any, ...] | None = None,
    earlier: Mapping[Any, Any] | None = None,
    changes_parameters: bool = True,
    addable: bool = False,
) -> Any:
    """Return a configuration field whose value is checked before a model is built.

    Args:
        default: its value where none is given.
        help: for the command line.
        at_least, below, at_most: ``at_least <= value < below`` or ``<= at_most``.
        one_of: the only values.
        earlier: value that an earlier version had -> what takes its place.
        changes_parameters: False where trained parameters mean the same with another value.
        addable: a model may have this part although the one that it starts from has not (value 0).
    """
    allowed = f"one of {', '.join(map(str, one_of))}" if one_of else _range_in_words(at_least, below, at_most)
    return field(
        default=default,
        metadata={
            "help": f"{help} ({allowed})" if allowed else help,
            "range": (at_least, below, at_most),
            "one_of": one_of,
            "earlier": earlier or {},
            "changes_parameters": changes_parameters,
            "addable": addable,
        },
    )


def probability(default: float, help: str) -> Any:
    """Return an option of at least 0 and below 1 on which trained parameters do not depend, such as a dropout."""
    return option(default, help, at_least=0, below=1, changes_parameters=False)


def positions(help: str) -> Any:
    """Return an option that is a number of positions."""
    return option(1024, help, at_least=1, at_most=2**24, changes_parameters=False)


def distance(default: int) -> Any:
    """Return the option ``--max-relative-positions``."""
    words = "relative positions in every self-attention up to this distance; 0 = none"
    return option(default, words, at_least=0, at_most=2**16, addable=True)


#: Options of fairseq's models that ours do not have, and that other checkpoints may record.
_OF_FAIRSEQS_MODELS = ("adaptive_softmax_cutoff", "quant_noise_pq", "quant_noise_scalar")


# fairseq reads these annotations at run time: no `from __future__ import annotations` here, and Optional[...] because
# it does not know "... | None".
@dataclass
class EncoderDecoderConfig(FairseqDataclass):
    """Sizes, dropouts, embeddings and positions of an encoder-decoder."""

    encoder_embed_dim: int = option(512, "width of the encoder", at_least=2, at_most=2**20)
    encoder_layers: int = option(6, "number of encoder layers", at_least=1, at_most=10_000)
    encoder_attention_heads: int = option(8, "number of attention heads in the encoder", at_least=1)
    decoder_embed_dim: int = option(512, "width of the decoder; must equal the encoder's", at_least=2, at_most=2**20)
    decoder_layers: int = option(6, "number of decoder layers", at_least=1, at_most=10_000)
    decoder_attention_heads: int = option(8, "number of attention heads in the decoder", at_least=1)

    dropout: float = probability(0.1, "dropout of embeddings and sub-layer outputs")
    attention_dropout: float = probability(0.0, "dropout of attention weights")
    activation_dropout: float = probability(0.0, "dropout inside the hidden or feed-forward nets")

    share_decoder_input_output_embed: bool = option(False, "the output projection is the decoder's embedding table")
    share_all_embeddings: bool = option(False, "one table for encoder, decoder and output (joined dictionary)")
    encoder_embed_path: Optional[str] = option(  # noqa: UP045  # see above the class
        None, "pre-trained encoder embeddings, a text file", changes_parameters=False
    )
    decoder_embed_path: Optional[str] = option(  # noqa: UP045  # see above the class
        None, "pre-trained decoder embeddings, a text file", changes_parameters=False
    )

    max_source_positions: int = option(
        1024, "longest source sentence in tokens", at_least=1, at_most=2**24, changes_parameters=False
    )
    max_target_positions: int = option(
        1024, "longest target sentence in tokens", at_least=1, at_most=2**24, changes_parameters=False
    )
    encoder_learned_pos: bool = option(False, "learned positions in the encoder instead of sinusoids")
    decoder_learned_pos: bool = option(False, "learned positions in the decoder instead of sinusoids")
    no_token_positional_embeddings: bool = option(False, "no absolute positions")
    no_scale_embedding: bool = option(False, "do not multiply embeddings by the square root of the width")

    max_relative_positions: int = option(
        0,
        "relative positions in every self-attention up to this distance; 0 = none",
        at_least=0,
        at_most=2**16,
        addable=True,
    )
    relative_position_terms: str = option(
        "key", "what relative positions act on: keys, or keys and values", one_of=("key", "key-value")
    )

    encoder_layerdrop: float = probability(0.0, "probability of skipping an encoder layer in training")
    decoder_layerdrop: float = probability(0.0, "probability of skipping a decoder layer in training")
    checkpoint_activations: bool = option(
        False, "recompute each layer in the backward pass to save memory", changes_parameters=False
    )

    @classmethod
    def complete(cls: type[Config], given: Any) -> Config:
        """Return an instance with the values of ``given`` where it has them and the defaults elsewhere.

        Args:
            given: what fairseq hands to ``build_model``: a DictConfig or a Namespace, perhaps from a checkpoint that
                an older version wrote.

        Raises:
            UserError: a value is out of range or two values contradict each other; the message names the option.
        """
        for name in _OF_FAIRSEQS_MODELS:
            if value := getattr(given, name, None):
                raise UserError(
                    f"--{name.replace('_', '-')} {value}: {cls.__name__.removesuffix('Config')} has none; fairseq's "
                    "own transformer has"
                )
        values: dict[str, Any] = {}
        for option_field in fields(cls):
            value = getattr(given, option_field.name, None)
            value = option_field.default if value is None else value
            values[option_field.name] = option_field.metadata.get("earlier", {}).get(value, value)
        config = cls(**values)
        check_values(cls, config)
        config.check()
        return config

    def check(self) -> None:
        """Raise :class:`UserError` where values contradict each other; families add their own."""
        for side in ("encoder", "decoder"):
            width, heads = getattr(self, f"{side}_embed_dim"), getattr(self, f"{side}_attention_heads")
            if width % heads:
                raise UserError(
                    f"--{side}-attention-heads {heads} does not divide --{side}-embed-dim {width}; "
                    f"{_nearest_divisor(width, heads)} does"
                )
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


def check_values(dataclass_of_options: Any, values: Any) -> None:
    """Raise :class:`UserError` where a value (an attribute) is not what the dataclass's :func:`option` allows."""
    for option_field in fields(dataclass_of_options):
        _check_value(option_field, getattr(values, option_field.name))


def _check_value(option_field: Field[Any], value: Any) -> None:
    name, metadata = option_field.name.replace("_", "-"), option_field.metadata
    at_least, below, at_most = limits = metadata.get("range", (None, None, None))
    types = get_args(option_field.type) or (option_field.type,)
    if "range" in metadata and value is not None and not _is_of_types(types, value):
        words = ", ".join(filter(None, (_TYPES_IN_WORDS[types[0]], _range_in_words(*limits))))
        raise UserError(f"--{name} {value!r} is of the wrong type; it must be {words}")  # as a checkpoint may record it
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"--{name} {value} is out of range; it must be finite")
    if value is not None and (
        (at_least is not None and value < at_least)
        or (below is not None and value >= below)
        or (at_most is not None and value > at_most)
    ):
        raise UserError(f"--{name} {value} is out of range; it must be {_range_in_words(*limits)}")
    one_of = metadata.get("one_of")
    if one_of and value not in one_of:
        raise UserError(f"--{name} {value} is not a choice; it must be one of {', '.join(map(str, one_of))}")


#: The types of options in a dataclass, and what an error calls their values.
_TYPES_IN_WORDS: dict[Any, str] = {int: "a whole number", float: "a number", bool: "a truth value", str: "text"}


def _is_of_types(types: tuple[Any, ...], value: Any) -> bool:
    """Return whether a value is of one of an option's types; whole numbers are numbers, and 0 and 1 truth values."""
    if bool in types:
        return value in (False, True)
    if isinstance(value, bool):
        return False
    return isinstance(value, (int, float) if float in types else types)


def _nearest_divisor(width: int, heads: int) -> int:
    return min((number for number in range(1, width + 1) if width % number == 0), key=lambda n: abs(n - heads))


def both_sides(**sizes: int) -> dict[str, int]:
    """Turn ``embed_dim=512`` into the options ``encoder_embed_dim`` and ``decoder_embed_dim``."""
    return {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sizes.items()}


def register_presets(model: str, presets: Mapping[str, Mapping[str, Any]]) -> None:
    """Register ``--arch MODEL_NAME`` for each preset: it sets those defaults and nothing else."""
    for name, defaults in presets.items():
        _register(model, f"{model}_{name}", defaults)


def _register(model: str, arch: str, defaults: Mapping[str, Any]) -> None:
    def set_defaults(args: Any) -> None:
        for option, value in defaults.items():
            if getattr(args, option, None) is None:
                setattr(args, option, value)

    register_model_architecture(model, arch)(set_defaults)
