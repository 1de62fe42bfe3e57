"""Pre-norm stacks of layers with residual connections: what families with feed-forward nets are built from."""

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
        for side, width in (("encoder", self.encoder_ffn_embed_dim), ("decoder", self.decoder_ffn_embed_dim)):
            require_even(self.activation_fn, f"--{side}-ffn-embed-dim", width)


class ResidualStacks(Stacks):
    """Builds the layers and connections of both stacks."""

    #: Gain of the projections to queries, keys and values at first; this one is as if the three were one.
    input_gain = 2**-0.5

    #: Whether relative positions have one table for keys and values.
    one_position_table = False

    #: Whether the norms of layer l are divided by sqrt(l).
    norm_scaling = False

    #: Classes of the layers.
    encoder_layer: type[ResidualEncoderLayer] = ResidualEncoderLayer
    decoder_layer: type[ResidualDecoderLayer] = ResidualDecoderLayer

    def layers(self, side: str) -> list[nn.Module]:
        config = self.config
        heads, hidden_dim = (getattr(config, f"{side}_{name}") for name in ("attention_heads", "ffn_embed_dim"))
        kind: Any = getattr(self, f"{side}_layer")
        return [
            kind(
                embed_dim=self.width,
                self_attention=self._attention(heads),
                cross_attention=self._attention(heads, attend_encoder=True) if side == "decoder" else None,
                feed_forward=FeedForward(
                    embed_dim=self.width,
                    hidden_dim=hidden_dim,
                    activation=config.activation_fn,
                    activation_dropout=config.activation_dropout,
                ),
                dropout=config.dropout,
                scaled_for=layer if self.norm_scaling else None,
            )
            for layer in range(1, self.depth(side) + 1)
        ]

    def _attention(self, heads: int, *, attend_encoder: bool = False) -> MultiheadAttention:
        attention = build_attention(
            self.config, heads=heads, bias=True, attend_encoder=attend_encoder, one_table=self.one_position_table
        )
        for projection in (attention.query_projection, attention.key_projection, attention.value_projection):
            nn.init.xavier_uniform_(projection.weight, gain=self.input_gain)
            nn.init.zeros_(projection.bias)
        nn.init.xavier_uniform_(attention.output_projection.weight)
        nn.init.zeros_(attention.output_projection.bias)
        return attention
