"""Model families: configuration, encoder and decoder, presets."""

from fairseq_depthwise.models import (
    depthwise_lstm_transformer,
    linearized_transformer,
    mute_transformer,
    sdt_transformer,
)

__all__ = ["depthwise_lstm_transformer", "linearized_transformer", "mute_transformer", "sdt_transformer"]
