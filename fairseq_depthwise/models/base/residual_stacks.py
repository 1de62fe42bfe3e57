"""Stacks of pre-norm Transformer layers (attention and feed-forward net): the base of the sdt and mute families."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from fairseq_depthwise.models.base.assembly import Stacks, build_attention
from fairseq_depthwise.models.base.config import EncoderDecoderConfig, option
from fairseq_depthwise.modules.activations import ACTIVATIONS, require_even
from fairseq_depthwise.modules.attention import MultiheadAttention
from fairseq_depthwise.modules.feed_forward import FeedForward
from fairseq_depthwise.modules.residual_layers import ResidualDecoderLayer, ResidualEncoderLayer


@dataclass
class ResidualConfig(EncoderDecoderConfig):
    """Options of the feed-forward nets."""

    encoder_ffn_embed_dim: int = option(2048, "width inside the encoder's feed-forward nets", at_least=1, at_most=2**20)
    decoder_ffn_embed_dim: int = option(2048, "width inside the decoder's feed-forward nets", at_least=1, at_most=2**20)
    activation_fn: str = option("relu", "activation of the feed-forward nets", one_of=tuple(ACTIVATIONS))

    def check(self) -> None:
        super().check()
        # Gated activations (such as glu) halve the width.
        require_even(self.activation_fn, "--encoder-ffn-embed-dim", self.encoder_ffn_embed_dim)
        require_even(self.activation_fn, "--decoder-ffn-embed-dim", self.decoder_ffn_embed_dim)


class ResidualStacks(Stacks):
    """Builds the layers of both stacks. A family changes them by overriding the attributes below."""

    #: Gain of the Xavier-uniform initialization of the query, key and value projections. fairseq initializes the three
    #: as one matrix (3d x d), which makes each smaller by 1/sqrt(2); this gain has the same effect.
    input_gain = 2**-0.5

    #: Use the keys' table of relative positions for the values, too, as the authors' Multi-Unit Transformer does.
    one_position_table = False

    #: Divide the output of each layer norm in layer l by sqrt(l): LayerNorm Scaling, see ``residual_layers.py``.
    norm_scaling = False

    #: What a layer is built from; some connections over depth need classes of their own.
    encoder_layer: type[ResidualEncoderLayer] = ResidualEncoderLayer
    decoder_layer: type[ResidualDecoderLayer] = ResidualDecoderLayer

    def layers(self, side: str) -> list[nn.Module]:
        return [self._build_layer(side, number) for number in range(1, self.depth(side) + 1)]

    def _build_layer(self, side: str, number: int) -> nn.Module:
        """Build a layer; ``number`` counts from 1."""
        config = self.config
        is_encoder = side == "encoder"
        layer_class: Any = self.encoder_layer if is_encoder else self.decoder_layer
        heads = getattr(config, f"{side}_attention_heads")

        # Keep this order: each part draws its initial weights from the random generator, so that reordering changes
        # what a seed gives.
        self_attention = self._build_attention(heads)
        cross_attention = None if is_encoder else self._build_attention(heads, attend_encoder=True)
        feed_forward = FeedForward(
            embed_dim=self.width,
            hidden_dim=getattr(config, f"{side}_ffn_embed_dim"),
            activation=config.activation_fn,
            activation_dropout=config.activation_dropout,
        )
        layer: nn.Module = layer_class(
            embed_dim=self.width,
            self_attention=self_attention,
            cross_attention=cross_attention,
            feed_forward=feed_forward,
            dropout=config.dropout,
            norm_scaling_layer=number if self.norm_scaling else None,
        )
        return layer

    def _build_attention(self, heads: int, *, attend_encoder: bool = False) -> MultiheadAttention:
        attention = build_attention(
            self.config, heads=heads, bias=True, attend_encoder=attend_encoder, one_table=self.one_position_table
        )
        for projection in (attention.query_projection, attention.key_projection, attention.value_projection):
            nn.init.xavier_uniform_(projection.weight, gain=self.input_gain)
            nn.init.zeros_(projection.bias)
        nn.init.xavier_uniform_(attention.output_projection.weight)
        nn.init.zeros_(attention.output_projection.bias)
        return attention
