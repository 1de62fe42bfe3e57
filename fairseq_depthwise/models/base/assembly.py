"""Assemble the model of any family: embeddings, two stacks of layers, output projection."""

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
from fairseq_depthwise.modules.stack import Connection, StackShape


class Stacks:
    """Builds the family-specific parts of a model: the layers, and the connections between them."""

    connection: type[Connection] = Connection

    def __init__(self, config: Any) -> None:
        self.config = config
        self.width: int = config.encoder_embed_dim

    def layers(self, side: str) -> list[nn.Module]:
        """Return the layers of the encoder or the decoder, first to last."""
        raise NotImplementedError  # abstract: each family has its own

    def connect(self, side: str) -> Connection:
        return self.connection(StackShape(self.width, self.depth(side)))

    def depth(self, side: str) -> int:
        depth: int = getattr(self.config, f"{side}_layers")
        return depth


def assemble(stacks: Stacks, task: FairseqTask) -> tuple[StackEncoder, StackDecoder]:
    """Build encoder and decoder for a task's dictionaries; raise UserError where these contradict an option."""
    config = stacks.config
    source, target = task.source_dictionary, task.target_dictionary
    source_embedding, target_embedding = build_embeddings(config, source, target)
    encoder = StackEncoder(source, config, source_embedding, stacks.layers("encoder"), stacks.connect("encoder"))
    decoder = StackDecoder(target, config, target_embedding, stacks.layers("decoder"), stacks.connect("decoder"))
    return encoder, decoder


def build_attention(
    config: EncoderDecoderConfig, *, heads: int, bias: bool, attend_encoder: bool = False, one_table: bool = False
) -> MultiheadAttention:
    """Build an attention of a layer; self-attention has relative positions if the options say so."""
    relative_positions = None
    if not attend_encoder:
        relative_positions = build_relative_positions(config, heads=heads, one_table=one_table)
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
    """Build the tables of a self-attention; return None if the options say no relative positions."""
    if not config.max_relative_positions:
        return None
    return RelativePositions(
        head_dim=config.encoder_embed_dim // heads,
        max_distance=config.max_relative_positions,
        value_term=config.relative_position_terms == "key-value",
        one_table=one_table,
        units=units,
    )
