"""Embedding tables for the dictionaries of a model."""

from __future__ import annotations

import functools

from fairseq import utils
from fairseq.data import Dictionary
from torch import nn

from fairseq_compat import UserError
from fairseq_depthwise.models.base.config import EncoderDecoderConfig
from fairseq_depthwise.modules.embedding import TokenEmbedding


def build_embeddings(
    config: EncoderDecoderConfig, source: Dictionary, target: Dictionary
) -> tuple[TokenEmbedding, TokenEmbedding]:
    """Build source and target embedding; with ``--share-all-embeddings`` they share one table, of one dictionary."""
    source_table = _embedding_table(source, config.encoder_embed_dim, config.encoder_embed_path)
    if config.share_all_embeddings:
        if source != target:
            raise UserError(
                f"--share-all-embeddings needs one dictionary for both languages, and these have {len(source)} and "
                f"{len(target)} entries; run fairseq-preprocess with --joined-dictionary"
            )
        target_table = source_table
    else:
        target_table = _embedding_table(target, config.decoder_embed_dim, config.decoder_embed_path)

    def embedding(table: nn.Embedding, max_positions: int, learned: bool) -> TokenEmbedding:
        return TokenEmbedding(
            tokens=table,
            max_positions=max_positions,
            learned_positions=learned,
            positions=not config.no_token_positional_embeddings,
            scale=not config.no_scale_embedding,
            dropout=config.dropout,
        )

    return (
        embedding(source_table, config.max_source_positions, config.encoder_learned_pos),
        embedding(target_table, config.max_target_positions, config.decoder_learned_pos),
    )


def _embedding_table(dictionary: Dictionary, width: int, path: str | None) -> nn.Embedding:
    """Draw rows from N(0, 1/width), which have unit variance when scaled by sqrt(width); padding has a zero row."""
    table = nn.Embedding(len(dictionary), width, padding_idx=dictionary.pad())
    nn.init.normal_(table.weight, mean=0, std=width**-0.5)
    nn.init.zeros_(table.weight[dictionary.pad()])
    if path:
        utils.load_embedding(utils.parse_embedding(path), dictionary, table)
    return table


@functools.cache
def placeholder_dictionary(size: int) -> Dictionary:
    """Return a dictionary of this size, always the same object, for a model of which only the sizes matter."""
    dictionary = Dictionary()
    for number in range(size - len(dictionary)):
        dictionary.add_symbol(f"word{number}")
    return dictionary
