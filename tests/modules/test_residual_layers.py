"""Residual layers against a reading sentence by sentence: values, gradients, where they drop, padding."""

from __future__ import annotations

import pytest
import torch
from module_checks import Factors, randn, require_gradients
from second_reading import read_attention, read_norm
from second_reading_sdt import read_decoder_layer, read_encoder_layer, read_feed_forward
from torch import Tensor, nn

from fairseq_depthwise.modules.attention import MultiheadAttention
from fairseq_depthwise.modules.feed_forward import FeedForward
from fairseq_depthwise.modules.relative_positions import RelativePositions
from fairseq_depthwise.modules.residual_layers import ResidualDecoderLayer, ResidualEncoderLayer

WIDTH, HEADS, HIDDEN, FAR = 4, 2, 6, 1

#: B x S.
PADDING = torch.tensor([[False, False, False, True], [True, False, False, False], [False] * 4])


def build_attention(attend_encoder: bool = False) -> MultiheadAttention:
    return MultiheadAttention(
        embed_dim=WIDTH,
        heads=HEADS,
        bias=True,
        attend_encoder=attend_encoder,
        relative_positions=None if attend_encoder else RelativePositions(head_dim=WIDTH // HEADS, max_distance=FAR),
    )


def build_layer(side: str, dropout: float = 0.0) -> ResidualEncoderLayer | ResidualDecoderLayer:
    """Every parameter random, so that none can be forgotten."""
    torch.manual_seed(1)
    feed_forward = FeedForward(embed_dim=WIDTH, hidden_dim=HIDDEN, activation="gelu")
    layer: ResidualEncoderLayer | ResidualDecoderLayer
    if side == "encoder":
        layer = ResidualEncoderLayer(
            embed_dim=WIDTH, self_attention=build_attention(), feed_forward=feed_forward, dropout=dropout
        )
    else:
        layer = ResidualDecoderLayer(
            embed_dim=WIDTH,
            self_attention=build_attention(),
            cross_attention=build_attention(attend_encoder=True),
            feed_forward=feed_forward,
            dropout=dropout,
        )
    for parameter in layer.parameters():
        nn.init.normal_(parameter, mean=0.2)
    return layer.double()


# --- the equations ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("padding", [None, PADDING], ids=["full", "padded"])
def test_encoder_layer_is_the_equations(padding: Tensor | None) -> None:
    layer, stream = build_layer("encoder"), randn(4, 3, WIDTH)
    with torch.no_grad():
        output = layer(stream, padding)
        for b in range(3):
            real = slice(None) if padding is None else ~padding[b]
            read = read_encoder_layer(layer, stream[real, b], FAR, False, "gelu")
            torch.testing.assert_close(output[real, b], read)


@pytest.mark.parametrize("padding", [None, PADDING], ids=["full", "padded"])
@pytest.mark.parametrize("need_weights", [False, True])
def test_decoder_layer_is_the_equations(padding: Tensor | None, need_weights: bool) -> None:
    layer, stream, encoded = build_layer("decoder"), randn(5, 3, WIDTH), randn(4, 3, WIDTH, seed=3)
    with torch.no_grad():
        output, weights = layer(stream, encoded, encoder_padding=padding, need_weights=need_weights)
        for b in range(3):
            real = slice(None) if padding is None else ~padding[b]
            read = read_decoder_layer(layer, stream[:, b], encoded[real, b], FAR, False, "gelu")
            torch.testing.assert_close(output[:, b], read)
    assert (weights is not None) == need_weights
    if weights is not None:
        assert weights.shape == (HEADS, 3, 5, 4)
        torch.testing.assert_close(weights.sum(-1), torch.ones(HEADS, 3, 5, dtype=torch.float64))
        assert padding is None or not weights[:, padding[:, None].expand(3, 5, 4)].any()


def test_gradients() -> None:
    padding, inputs = torch.tensor([[False, False], [False, True]]), (randn(2, 2, WIDTH), randn(2, 2, WIDTH, seed=3))
    require_gradients(build_layer("encoder"), inputs[:1], padding=padding)
    require_gradients(build_layer("decoder"), inputs, lambda returned: returned[0], encoder_padding=padding)


# --- dropout ---------------------------------------------------------------------------------------------------------


def test_encoder_layer_drops_what_each_sub_layer_returns() -> None:
    """And neither the stream nor anything else, in this order."""
    layer, x = build_layer("encoder"), randn(4, 1, WIDTH)
    layer.dropout = Factors(2.0, 3.0)
    with torch.no_grad():
        output = layer(x, None)[:, 0]
        x = x[:, 0]
        n = read_norm(layer.self_attention_norm, x)
        x = x + 2.0 * read_attention(layer.self_attention, n, n, torch.zeros(4, 4, dtype=torch.bool), FAR)
        x = x + 3.0 * read_feed_forward(layer.feed_forward, read_norm(layer.feed_forward_norm, x), "gelu")
        torch.testing.assert_close(output, x)
    assert layer.dropout.factors == []


def test_decoder_layer_drops_what_each_sub_layer_returns() -> None:
    layer, x, encoded = build_layer("decoder"), randn(4, 1, WIDTH), randn(3, 1, WIDTH, seed=3)
    layer.dropout = Factors(2.0, 3.0, 5.0)
    with torch.no_grad():
        output = layer(x, encoded)[0][:, 0]
        x = x[:, 0]
        n = read_norm(layer.self_attention_norm, x)
        x = x + 2.0 * read_attention(layer.self_attention, n, n, torch.ones(4, 4, dtype=torch.bool).triu(1), FAR)
        n = read_norm(layer.cross_attention_norm, x)
        nothing = torch.zeros(4, 3, dtype=torch.bool)
        x = x + 3.0 * read_attention(layer.cross_attention, n, encoded[:, 0], nothing)
        x = x + 5.0 * read_feed_forward(layer.feed_forward, read_norm(layer.feed_forward_norm, x), "gelu")
        torch.testing.assert_close(output, x)
    assert layer.dropout.factors == []
