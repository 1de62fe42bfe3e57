"""What every family is put together from: embeddings, two stacks of layers, output probabilities."""

from __future__ import annotations

from typing import Any

from fairseq.tasks import FairseqTask
from torch import nn

from fairseq_depthwise.models.base.config import EncoderDecoderConfig
from fairseq_depthwise.models.base.decoder import StackDecoder
from fairseq_depthwise.models.base.encoder import StackEncoder
from fairseq_depthwise.models.base.vocabulary import build_embeddings
from fairseq_depthwise.modules.attention import MultiheadAttention
from fairseq_depthwise.modules.relative_positions import RelativePositions
from fairseq_depthwise.modules.stack import Connection


class Stacks:
    """What a family adds: its layers, first to last, and what connects them."""

    connection: type[Connection] = Connection

    def __init__(self, config: Any) -> None:
        self.config = config
        self.width: int = config.encoder_embed_dim

    def encoder_layers(self) -> list[nn.Module]:
        """Return the encoder's layers, first to last."""
        raise NotImplementedError  # abstract: each family has its own

    def decoder_layers(self) -> list[nn.Module]:
        """Return the decoder's layers, first to last."""
        raise NotImplementedError  # abstract: each family has its own

    def encoder_connection(self) -> Connection:
        return self.connection(embed_dim=self.width)

    def decoder_connection(self) -> Connection:
        return self.connection(embed_dim=self.width)


def assemble(config: EncoderDecoderConfig, task: FairseqTask, stacks: Stacks) -> tuple[StackEncoder, StackDecoder]:
    """Build encoder and decoder for a task's dictionaries; raise UserError where these contradict an option."""
    source, target = task.source_dictionary, task.target_dictionary
    source_embedding, target_embedding = build_embeddings(config, source, target)
    encoder = StackEncoder(config, source, source_embedding, stacks.encoder_layers(), stacks.encoder_connection())
    decoder = StackDecoder(config, target, target_embedding, stacks.decoder_layers(), stacks.decoder_connection())
    return encoder, decoder


def build_attention(
    config: EncoderDecoderConfig, *, heads: int, bias: bool, attend_encoder: bool = False, one_table: bool = False
) -> MultiheadAttention:
    """Build an attention of a layer; self-attention has relative positions where the options ask for them."""
    relative_positions = None if attend_encoder else build_relative_positions(config, heads=heads, one_table=one_table)
    return MultiheadAttention(
        embed_dim=config.encoder_embed_dim,
        heads=heads,
        dropout=config.attention_dropout,
        bias=bias,
        attend_encoder=attend_encoder,
        relative_positions=relative_positions,
    )


def build_relative_positions(
    config: EncoderDecoderConfig, *, heads: int, one_table: bool = False, units: int | None = None
) -> RelativePositions | None:
    """Build the tables of a self-attention; return None where the options ask for no relative positions."""
    if not config.max_relative_positions:
        return None
    return RelativePositions(
        head_dim=config.encoder_embed_dim // heads,
        max_distance=config.max_relative_positions,
        value_term=config.relative_position_terms == "key-value",
        one_table=one_table,
        units=units,
    )
