"""What every family is put together from: embeddings, two stacks of layers, output probabilities."""

from __future__ import annotations

from typing import Protocol

from fairseq.tasks import FairseqTask
from torch import nn

from fairseq_depthwise.models.base.config import EncoderDecoderConfig
from fairseq_depthwise.models.base.decoder import StackDecoder
from fairseq_depthwise.models.base.encoder import StackEncoder
from fairseq_depthwise.models.base.vocabulary import build_embeddings
from fairseq_depthwise.modules.attention import MultiheadAttention
from fairseq_depthwise.modules.relative_positions import RelativePositions
from fairseq_depthwise.modules.stack import Connection


class Stacks(Protocol):
    """What a family adds: its layers, first to last, and what connects them."""

    def encoder_layers(self) -> list[nn.Module]: ...

    def decoder_layers(self) -> list[nn.Module]: ...

    def encoder_connection(self) -> Connection: ...

    def decoder_connection(self) -> Connection: ...


def assemble(config: EncoderDecoderConfig, task: FairseqTask, stacks: Stacks) -> tuple[StackEncoder, StackDecoder]:
    """Build encoder and decoder for a task's dictionaries.

    Raises:
        UserError: the dictionaries, or the widths of the layers, contradict an option.
    """
    source, target = task.source_dictionary, task.target_dictionary
    source_embedding, target_embedding = build_embeddings(config, source, target)
    encoder = StackEncoder(
        dictionary=source,
        embedding=source_embedding,
        layers=stacks.encoder_layers(),
        connection=stacks.encoder_connection(),
        max_positions=config.max_source_positions,
        layerdrop=config.encoder_layerdrop,
        checkpoint_activations=config.checkpoint_activations,
    )
    decoder = StackDecoder(
        dictionary=target,
        embedding=target_embedding,
        layers=stacks.decoder_layers(),
        connection=stacks.decoder_connection(),
        share_embedding=config.share_decoder_input_output_embed or config.share_all_embeddings,
        max_positions=config.max_target_positions,
        layerdrop=config.decoder_layerdrop,
        checkpoint_activations=config.checkpoint_activations,
    )
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
