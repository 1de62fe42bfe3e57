"""Model families, one folder each: configuration, encoder and decoder, presets."""

#: The class of each family's models -> its folder.
FAMILIES = {
    "DepthwiseLSTMTransformer": "depthwise_lstm",
    "LinearizedTransformer": "linearized",
    "MuteTransformer": "mute",
    "SDTTransformer": "sdt",
}
