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


def build_tiny(name: str = "depthwise_lstm_transformer", **options: Any) -> FairseqEncoderDecoderModel:
    """A seeded model in evaluation mode whose norms are not the identity, so that a forgotten one shows."""
    torch.manual_seed(1)
    model = MODEL_REGISTRY[name].build_model(SimpleNamespace(**(TINY | options)), task_of())
    for parameter_name, parameter in model.named_parameters():
        if "norm" in parameter_name:
            torch.nn.init.normal_(parameter, mean=1.0, std=0.3)
    return model.eval()
