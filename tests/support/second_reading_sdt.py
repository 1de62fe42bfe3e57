"""A second reading of the shallow-to-deep paper: the whole model block by block, from its parameters.

As in ``second_reading.py``, whose attention this shares: nothing here calls the package's own computation, and options
are given anew, in the names of the command line. One sentence at a time, without padding, without dropout.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

import torch
from second_reading import read_activation, read_attention, read_embedding, read_linear, read_norm
from second_reading_connections import READINGS, Blend, Connected, Unit
from tiny_models import FAMILIES
from torch import Tensor, nn


class ReadEncoder(NamedTuple):
    """What the decoder attends to, and the embedding's and each layer's output; T x C each."""

    output: Tensor
    states: list[Tensor]


def read_feed_forward(net: nn.Module, x: Tensor, activation: str = "relu") -> Tensor:
    """Vaswani et al. 2017, Equation 2."""
    return read_linear(net.second, read_activation(activation, read_linear(net.first, x)))


def read_scaled_norm(norm: nn.Module, x: Tensor) -> Tensor:
    """Layer norm, with ``--norm-scaling`` over the root of the layer's number, which a reader gave the norm before."""
    return read_norm(norm, x) / getattr(norm, "number_read", 1) ** 0.5


def number_norms(stack: nn.Module, options: dict[str, Any]) -> None:
    """Write the number of each layer, from 1, onto its norms, if they are scaled."""
    for number, layer in enumerate(stack.layers, start=1):
        for name, norm in layer.named_children():
            if name.endswith("_norm") and options.get("norm_scaling"):
                norm.number_read = number


def read_blend(layer: nn.Module, n: Tensor, blend: Blend | None) -> Tensor | None:
    """``l_1 V_1 + l_2 V_n`` of ResFormer; None: the layer's own values."""
    if blend is None:
        return None
    first, mine, own = blend
    return mine * first + own * read_linear(layer.self_attention.value_projection, n)


def read_encoder_layer(
    layer: nn.Module, x: Tensor, max_distance: int, on_values: bool, activation: str, blend: Blend | None = None,
    parts: str = "sf",
) -> Tensor:  # fmt: skip
    """``parts``: those of the sub-layers that are read, s(elf-attention), in the decoder c(ross-attention), f."""
    if "s" in parts:
        everywhere = torch.zeros(len(x), len(x), dtype=torch.bool)
        n = read_scaled_norm(layer.self_attention_norm, x)
        values = read_blend(layer, n, blend)
        x = x + read_attention(layer.self_attention, n, n, everywhere, max_distance, on_values, values)
    if "f" not in parts:
        return x
    return x + read_feed_forward(layer.feed_forward, read_scaled_norm(layer.feed_forward_norm, x), activation)


def read_decoder_layer(
    layer: nn.Module, x: Tensor, encoded: Tensor, max_distance: int, on_values: bool, activation: str,
    blend: Blend | None = None, parts: str = "scf",
) -> Tensor:  # fmt: skip
    if "s" in parts:
        future = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
        n = read_scaled_norm(layer.self_attention_norm, x)
        values = read_blend(layer, n, blend)
        x = x + read_attention(layer.self_attention, n, n, future, max_distance, on_values, values)
    if "c" in parts:
        n = read_scaled_norm(layer.cross_attention_norm, x)
        x = x + read_attention(layer.cross_attention, n, encoded, torch.zeros(len(x), len(encoded), dtype=torch.bool))
    if "f" not in parts:
        return x
    return x + read_feed_forward(layer.feed_forward, read_scaled_norm(layer.feed_forward_norm, x), activation)


def read_sum(weights: Tensor, outputs: list[Tensor]) -> Tensor:
    """``sum_j W[b, j] y_j``; there is exactly one weight for each y_j."""
    assert len(weights) == len(outputs)
    total = torch.zeros_like(outputs[0])
    for j, y in enumerate(outputs):
        total += weights[j] * y
    return total


def read_encoder(
    model: nn.Module, source: Tensor, options: dict[str, Any], skipped: Collection[int] = ()
) -> ReadEncoder:
    """Sections 2 and 4.2. ``skipped``: layers, counted from 0, that LayerDrop passes by."""
    encoder = model.encoder
    number_norms(encoder, options)
    x = read_embedding(encoder.embedding.tokens.weight, source)
    states = [x]
    given = read_options(options)

    def run(x: Tensor, numbers: Iterable[int]) -> Tensor:
        for number in numbers:
            x = x if number in skipped else read_encoder_layer(encoder.layers[number], x, *given)
            states.append(x)
        return x

    layers = len(encoder.layers)
    p = (FAMILIES["sdt_transformer"] | options)["encoder_block_size"]
    kind = options.get("encoder_connection", "blocks")
    if kind != "blocks":
        units = read_units(encoder.layers, options, "sf")
        connected = Connected(
            encoder.connection, units, p * (len(units) // layers),
            lambda unit, h, blend: read_encoder_layer(unit[0], h, *given, blend, unit[1]),
        )  # fmt: skip
        x = READINGS[kind](connected, x)
    elif p == 0:
        x = run(x, range(layers))
    else:
        y = [x]
        for b in range(layers // p):
            x = run(read_sum(encoder.connection.rows[b], y), range(b * p, (b + 1) * p))
            y.append(read_norm(encoder.connection.norms[b], x))
        x = read_sum(encoder.connection.rows[layers // p], y)
    return ReadEncoder(read_norm(encoder.connection.final_norm, x), states)


def read_features(model: nn.Module, source: Tensor, target: Tensor, options: dict[str, Any]) -> Tensor:
    """The decoder's output (T x C) of one sentence."""
    encoded = read_encoder(model, source, options).output
    decoder = model.decoder
    number_norms(decoder, options)
    x = read_embedding(decoder.embedding.tokens.weight, target)
    kind, given = options.get("decoder_connection", "residual"), read_options(options)
    connected = Connected(
        decoder.connection, read_units(decoder.layers, options, "scf"), 0,
        lambda unit, h, blend: read_decoder_layer(unit[0], h, encoded, *given, blend, unit[1]),
    )  # fmt: skip
    x = READINGS[kind](connected, x)
    return read_norm(decoder.connection.final_norm, x)


def read_units(layers: Iterable[nn.Module], options: dict[str, Any], parts: str) -> list[Unit]:
    """What a connection connects: layers, or each of their sub-layers."""
    units = list(parts) if options.get("connection_unit") == "sub-layer" else [parts]
    return [(layer, unit) for layer in layers for unit in units]


def read_options(options: dict[str, Any]) -> tuple[int, bool, str]:
    """Largest relative distance, whether there are tables for the values, activation."""
    given = FAMILIES["sdt_transformer"] | options
    on_values = given.get("relative_position_terms") == "key-value"
    return given["max_relative_positions"], on_values, given.get("activation_fn", "relu")
