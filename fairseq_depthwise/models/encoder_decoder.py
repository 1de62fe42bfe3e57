"""Encoder and decoder that every family shares: embed, run a stack of layers, normalise, project.

A family hands in its layers and the connection between them (:mod:`fairseq_depthwise.modules.connections`).
"""

from __future__ import annotations

from typing import Any

import torch
from fairseq import utils
from fairseq.data import Dictionary
from fairseq.models import FairseqEncoder, FairseqEncoderDecoderModel, FairseqIncrementalDecoder
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fairseq_compat import UserError
from fairseq_depthwise.models.config import EncoderDecoderConfig
from fairseq_depthwise.modules.connections import DepthwiseConnection
from fairseq_depthwise.modules.embedding import TokenEmbedding


class StackModel(FairseqEncoderDecoderModel):
    """A :class:`StackEncoder` and a :class:`StackDecoder`; the families' models are subclasses."""

    #: fairseq reads this where alignments are asked for: True makes it run the finished sentences once more for their
    #: attention weights, instead of expecting the weights of every step of the beam search.
    full_context_alignment = True


class StackEncoder(FairseqEncoder):
    """Token embedding, a stack of encoder layers, and what the decoder attends to.

    Args:
        dictionary: source dictionary.
        embedding: tokens to the stack's input.
        layers: encoder layers, first to last.
        connection: makes the first state and the output.
        max_positions: longest source sentence.
        checkpoint_activations: recompute each layer in the backward pass.
    """

    def __init__(
        self,
        *,
        dictionary: Dictionary,
        embedding: TokenEmbedding,
        layers: list[nn.Module],
        connection: DepthwiseConnection,
        max_positions: int,
        checkpoint_activations: bool = False,
    ) -> None:
        super().__init__(dictionary)
        self.embedding = embedding
        self.layers = nn.ModuleList(layers)
        self.connection = connection
        self.longest = max_positions
        self.checkpoint_activations = checkpoint_activations

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
    ) -> dict[str, list[Tensor]]:
        """Encode a batch.

        Args:
            src_tokens: B x T.
            src_lengths: B; not used, padding is read from the tokens.
            return_all_hiddens: also return the embedding's and every layer's output.

        Returns:
            fairseq's encoder output: ``encoder_out`` [T x B x C], ``encoder_padding_mask`` [B x T],
            ``encoder_states`` [L + 1 times T x B x C] if asked for, ``src_lengths`` [B x 1].
        """
        padding = src_tokens.eq(self.dictionary.pad())
        layer_padding = padding if padding.any() else None
        embedded = self.embedding(src_tokens)
        state = self.connection.start(embedded)
        states = [embedded] if return_all_hiddens else []
        for layer in self.layers:
            state = _run(layer, state, layer_padding, recompute=self.checkpoint_activations and self.training)
            if return_all_hiddens:
                states.append(self.connection.hidden(state))
        return {
            "encoder_out": [self.connection.finish(state)],
            "encoder_padding_mask": [padding],
            "encoder_embedding": [],
            "encoder_states": states,
            "src_tokens": [],
            "src_lengths": [padding.logical_not().sum(dim=1, keepdim=True, dtype=torch.int32)],
        }

    def reorder_encoder_out(self, encoder_out: dict[str, list[Tensor]], new_order: Tensor) -> dict[str, list[Tensor]]:
        """Row b of every tensor becomes the old row ``new_order[b]``; the beam search asks for it."""
        batch_dim = {"encoder_out": 1, "encoder_states": 1}
        return {
            name: [tensor.index_select(batch_dim.get(name, 0), new_order) for tensor in tensors]
            for name, tensors in encoder_out.items()
        }

    def max_positions(self) -> int:
        return self.longest


class StackDecoder(FairseqIncrementalDecoder):
    """Token embedding, a stack of decoder layers, and the projection to the vocabulary.

    Args:
        dictionary: target dictionary.
        embedding: tokens to the stack's input.
        layers: decoder layers, first to last.
        connection: makes the first state and the output.
        share_embedding: the output projection is the embedding table.
        max_positions: longest target sentence.
        checkpoint_activations: recompute each layer in the backward pass.
    """

    def __init__(
        self,
        *,
        dictionary: Dictionary,
        embedding: TokenEmbedding,
        layers: list[nn.Module],
        connection: DepthwiseConnection,
        share_embedding: bool,
        max_positions: int,
        checkpoint_activations: bool = False,
    ) -> None:
        super().__init__(dictionary)
        self.embedding = embedding
        self.layers = nn.ModuleList(layers)
        self.connection = connection
        self.longest = max_positions
        self.checkpoint_activations = checkpoint_activations
        table = embedding.tokens.weight
        self.output_projection = nn.Linear(table.size(1), table.size(0), bias=False)
        if share_embedding:
            self.output_projection.weight = table
        else:
            nn.init.normal_(self.output_projection.weight, mean=0, std=table.size(1) ** -0.5)

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Tensor]],
        incremental_state: dict[str, Any] | None = None,
        features_only: bool = False,
        full_context_alignment: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Next-token scores (B x T x V), or features (B x T x C) with ``features_only``.

        Args:
            prev_output_tokens: B x T, shifted by one as fairseq does it.
            encoder_out: what :class:`StackEncoder` returns.
            incremental_state: fairseq's decoding state; only the last position is computed then, and T is 1.
            features_only: leave the output projection out.
            full_context_alignment: no causal mask, for the alignment of a finished sentence.
            alignment_layer: whose cross-attention is returned, counted from 0. Unless given: the last layer's when a
                whole sentence is evaluated, none in training and in incremental decoding, where nobody reads it.
            alignment_heads: average over the first so many heads; over all unless given.
            src_lengths: not used.
            return_all_hiddens: not used; the layers' outputs are always in ``inner_states``.

        Returns:
            the scores, and ``{"attn": [B x T x S or None], "inner_states": [L + 1 times T x B x C]}``.
        """
        features, extra = self.extract_features(
            prev_output_tokens,
            encoder_out,
            incremental_state=incremental_state,
            full_context_alignment=full_context_alignment,
            alignment_layer=alignment_layer,
            alignment_heads=alignment_heads,
        )
        return (features if features_only else self.output_layer(features)), extra

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Tensor]],
        incremental_state: dict[str, Any] | None = None,
        full_context_alignment: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        """As :meth:`forward` with ``features_only``."""
        if alignment_layer is None and not self.training and incremental_state is None:
            alignment_layer = len(self.layers) - 1
        encoder_padding = encoder_out["encoder_padding_mask"][0]
        embedded = self.embedding(prev_output_tokens, incremental_state=incremental_state)
        attend = {
            "encoder_output": encoder_out["encoder_out"][0],
            "encoder_padding": encoder_padding if encoder_padding.any() else None,
            "self_padding": self._padding_to_hide(prev_output_tokens, incremental_state, full_context_alignment),
            "causal": not full_context_alignment,
            "incremental_state": incremental_state,
        }
        state = self.connection.start(embedded)
        inner_states = [embedded]
        weights: Tensor | None = None
        for index, layer in enumerate(self.layers):
            need_weights = index == alignment_layer
            recompute = self.checkpoint_activations and self.training
            state, layer_weights = _run(layer, state, need_weights=need_weights, recompute=recompute, **attend)
            inner_states.append(self.connection.hidden(state))
            if layer_weights is not None:
                weights = layer_weights[:alignment_heads].float().mean(dim=0)
        features = self.connection.finish(state).transpose(0, 1)
        return features, {"attn": [weights], "inner_states": inner_states}

    def output_layer(self, features: Tensor) -> Tensor:
        """Features (B x T x C) to scores over the vocabulary (B x T x V)."""
        return self.output_projection(features)

    def max_positions(self) -> int:
        return self.longest

    def _padding_to_hide(
        self, tokens: Tensor, incremental_state: dict[str, Any] | None, sees_all: bool
    ) -> Tensor | None:
        """The padding (B x T) that self-attention could see, or None.

        Padding on the right lies in the future of every real position, so the causal mask hides it already; decoding
        has none.
        """
        if incremental_state is not None:
            return None
        padding = tokens.eq(self.dictionary.pad())
        reachable = padding if sees_all else padding[:, 0]
        return padding if reachable.any() else None


def _run(layer: nn.Module, *args: Any, recompute: bool, **kwargs: Any) -> Any:
    """Call a layer; with ``recompute`` keep only its input and compute the rest again in the backward pass."""
    if recompute:
        return checkpoint(layer, *args, use_reentrant=False, **kwargs)
    return layer(*args, **kwargs)


def build_embeddings(
    config: EncoderDecoderConfig, source: Dictionary, target: Dictionary
) -> tuple[TokenEmbedding, TokenEmbedding]:
    """Source and target embedding, sharing one table with ``--share-all-embeddings``.

    Raises:
        UserError: one table is wanted for two different dictionaries.
    """
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

    def embedding(table: nn.Embedding, longest: int, learned: bool) -> TokenEmbedding:
        return TokenEmbedding(
            tokens=table,
            max_positions=longest,
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
    """Rows from N(0, 1/width), so that scaled by sqrt(width) they have unit variance; a zero row for padding."""
    table = nn.Embedding(len(dictionary), width, padding_idx=dictionary.pad())
    nn.init.normal_(table.weight, mean=0, std=width**-0.5)
    nn.init.zeros_(table.weight[dictionary.pad()])
    if path:
        utils.load_embedding(utils.parse_embedding(path), dictionary, table)
    return table
