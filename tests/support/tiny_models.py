"""A tiny task and tiny models for the tests of the model families."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models import MODEL_REGISTRY, FairseqEncoderDecoderModel

import fairseq_depthwise  # noqa: F401  # registers the models

TINY: dict[str, Any] = {
    "encoder_embed_dim": 16,
    "decoder_embed_dim": 16,
    "encoder_layers": 3,
    "decoder_layers": 3,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "depthwise_hidden_dim": 24,
}

#: What ``sdt_transformer`` has instead or besides: two blocks of two layers in the encoder.
SDT_TINY: dict[str, Any] = {
    "encoder_layers": 4,
    "encoder_ffn_embed_dim": 24,
    "decoder_ffn_embed_dim": 32,
    "encoder_block_size": 2,
    "max_relative_positions": 2,
}

#: What ``mute_transformer`` has instead or besides.
MUTE_TINY: dict[str, Any] = {
    "encoder_layers": 2,
    "encoder_units": 3,
    "encoder_ffn_embed_dim": 24,
    "decoder_ffn_embed_dim": 32,
    "max_relative_positions": 2,
}

#: Family -> sizes of its tiny model.
FAMILIES: dict[str, dict[str, Any]] = {
    "depthwise_lstm_transformer": TINY,
    "sdt_transformer": TINY | SDT_TINY,
    "mute_transformer": TINY | MUTE_TINY,
}

PAD, EOS = 1, 2

#: Three sentences of different lengths, sources padded left and targets, shifted by one, padded right.
SOURCE = torch.tensor([[PAD, PAD, 5, 6, EOS], [4, 7, 8, 9, EOS], [PAD, 10, 11, 4, EOS]])
TARGET = torch.tensor([[EOS, 6, 5, PAD], [EOS, 9, 8, 7], [EOS, 4, 11, PAD]])
#: What is to follow each position of ``TARGET``.
EXPECTED = torch.tensor([[6, 5, EOS, PAD], [9, 8, 7, EOS], [4, 11, EOS, PAD]])

#: Variants of ``depthwise_lstm_transformer``: what they are called, and the options that make them.
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "rnn": {"depthwise_cell": "rnn"},
    "one layer": {"depthwise_hidden_layers": 1},
    "one layer, relu": {"depthwise_hidden_layers": 1, "depthwise_hidden_activation": "relu"},
    "gelu": {"depthwise_hidden_activation": "gelu"},
    "relu": {"depthwise_hidden_activation": "relu"},
    "share all": {"depthwise_sharing": "all"},
    "share none": {"depthwise_sharing": "none"},
    "gates of the model": {"depthwise_gate_scope": "model"},
    "share all, gates of the model": {"depthwise_sharing": "all", "depthwise_gate_scope": "model"},
    "concat": {"decoder_merge": "concat"},
    "two cells": {"decoder_merge": "two-cells"},
    "two cells, gates of the model": {"decoder_merge": "two-cells", "depthwise_gate_scope": "model"},
    "two cells, share all": {"decoder_merge": "two-cells", "depthwise_sharing": "all"},
    "relative keys": {"max_relative_positions": 2},
    "relative keys and values": {"max_relative_positions": 2, "relative_position_terms": "key-value"},
    "attention bias": {"attention_bias": True},
    "open": {"depthwise_forget_bias": 2.0, "depthwise_gate_gain": 0.25, "depthwise_attention_skip": True},
    "joint gate norm, skip, concat": {
        "depthwise_gate_norm": "joint",
        "depthwise_attention_skip": True,
        "decoder_merge": "concat",
    },
    "joint gate norm, skip, two cells": {
        "depthwise_gate_norm": "joint",
        "depthwise_attention_skip": True,
        "decoder_merge": "two-cells",
    },
    "3 and 2 layers": {"encoder_layers": 3, "decoder_layers": 2},
    "rnn, one layer, concat, share all, relative": {
        "depthwise_cell": "rnn",
        "depthwise_hidden_layers": 1,
        "decoder_merge": "concat",
        "depthwise_sharing": "all",
        "max_relative_positions": 1,
        "relative_position_terms": "key-value",
    },
}


def both(name: str, **options: Any) -> dict[str, Any]:
    """Options that let a connection connect both stacks."""
    return {"encoder_block_size": 0, "encoder_connection": name, "decoder_connection": name, **options}


#: Variants of ``sdt_transformer``, with their family's name for :func:`build_tiny`.
SDT_VARIANTS: dict[str, dict[str, Any]] = {
    name: {"name": "sdt_transformer", **options}
    for name, options in {
        "sdt": {},
        "sdt, no connections": {"encoder_block_size": 0},
        "sdt, dense": {"encoder_block_size": 1},
        "sdt, one block": {"encoder_block_size": 4},
        "sdt, three blocks, 2 decoder layers": {"encoder_layers": 6, "decoder_layers": 2},
        "sdt, absolute": {"max_relative_positions": 0},
        "sdt, relative keys and values": {"relative_position_terms": "key-value"},
        "sdt, gelu, one table": {"activation_fn": "gelu", "share_all_embeddings": True},
        **{f"sdt, {name}": both(name) for name in ("average", "attention", "hyper", "value-residual")},
        "sdt, attention by blocks": {"encoder_connection": "attention"},
        **{
            f"sdt, {name} of sub-layers": both(name, connection_unit="sub-layer")
            for name in ("average", "attention", "hyper")
        },
        "sdt, attention by blocks of sub-layers": {"encoder_connection": "attention", "connection_unit": "sub-layer"},
        **{
            f"sdt, streams by {kind}": both("hyper", hyper_streams=3, hyper_manifold=kind, connection_unit="sub-layer")
            for kind in ("permutations", "identity")
        },
        "sdt, scaled norms": {"norm_scaling": True, "encoder_block_size": 0},
        "sdt, streams on a manifold": both("hyper", hyper_streams=3, hyper_manifold=True),
    }.items()
}

#: Variants of ``mute_transformer``; where there is noise, every training forward has it.
MUTE_VARIANTS: dict[str, dict[str, Any]] = {
    name: {"name": "mute_transformer", "unit_noise_rate": 1.0, **options}
    for name, options in {
        "mute": {},
        "mute, one unit": {"encoder_units": 1},
        "mute, noise": {"encoder_units": 4, "unit_inputs": "identity,swap,mask,disorder"},
        "mute, masks of many, shared attention": {
            "unit_inputs": "mask",
            "unit_mask_rate": 0.4,
            "unit_sharing": "attention",
        },
        "mute, shared attention": {"unit_sharing": "attention"},
        "mute, shared ffn": {"unit_sharing": "ffn", "unit_inputs": "identity,swap,disorder"},
        "mute, sequential": {"unit_sequential": True, "unit_inputs": "swap,mask,disorder"},
        "mute, sequential, hard": {"unit_sequential": True, "permutation_at_inference": "hard"},
        "mute, absolute": {"max_relative_positions": 0},
        "mute, relative keys": {"relative_position_terms": "key"},
        "mute, gelu, one table": {"activation_fn": "gelu", "share_all_embeddings": True},
        "mute, glu": {"activation_fn": "glu"},
    }.items()
}


def dictionary_of(size: int) -> Dictionary:
    """A dictionary with ``size`` entries, fairseq's four special ones included."""
    dictionary = Dictionary()
    for number in range(size - len(dictionary)):
        dictionary.add_symbol(f"w{number}")
    return dictionary


def task_of(source_size: int = 12, target_size: int = 12) -> SimpleNamespace:
    """What ``build_model`` needs of a task."""
    source = dictionary_of(source_size)
    target = source if target_size == source_size else dictionary_of(target_size)
    return SimpleNamespace(source_dictionary=source, target_dictionary=target)


def batch_of(*sentences: int) -> dict[str, Any]:
    """Those of the three sentences, all of them unless given, as fairseq's data sets make a batch."""
    rows = list(sentences or range(3))
    source, target, expected = SOURCE[rows], TARGET[rows], EXPECTED[rows]
    return {
        "id": torch.tensor(rows),
        "nsentences": len(rows),
        "ntokens": int(expected.ne(PAD).sum()),
        "net_input": {"src_tokens": source, "src_lengths": source.ne(PAD).sum(1), "prev_output_tokens": target},
        "target": expected,
    }


def build_tiny(name: str = "depthwise_lstm_transformer", **options: Any) -> FairseqEncoderDecoderModel:
    """A seeded model in evaluation mode.

    Norms are not the identity, biases not zero, the weights of block connections and of units not all the same, and
    units not side by side, so that one that is forgotten, or mistaken for another, shows.
    """
    torch.manual_seed(1)
    model = MODEL_REGISTRY[name].build_model(SimpleNamespace(**(FAMILIES[name] | options)), task_of())
    for parameter_name, parameter in model.named_parameters():
        if "connection.mixings" in parameter_name:
            parameter.data += 0.3 * torch.randn_like(parameter)
        elif "norm" in parameter_name:
            torch.nn.init.normal_(parameter, mean=1.0, std=0.3)
        elif parameter_name.endswith("order.raw"):
            torch.nn.init.uniform_(parameter, -0.1, 1.0)
        elif parameter_name.endswith("unit_weights"):
            torch.nn.init.normal_(parameter, mean=0.5, std=0.3)
        elif "connection.rows" in parameter_name or (parameter_name.endswith("bias") and not parameter.any()):
            torch.nn.init.normal_(parameter, mean=0.5, std=0.5)
    return model.eval()
