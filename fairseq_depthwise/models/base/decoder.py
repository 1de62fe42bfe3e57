"""The decoder of every family: embed, run a stack of layers, project."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models import FairseqIncrementalDecoder
from torch import Tensor, nn

from fairseq_depthwise.models.base.config import EncoderDecoderConfig
from fairseq_depthwise.modules.decoding.cache import DecodingCache
from fairseq_depthwise.modules.embedding import TokenEmbedding
from fairseq_depthwise.modules.linear.prepacked import prepack
from fairseq_depthwise.modules.stack import Connection, Stack

#: Key of a search's cache in fairseq's incremental state.
_CACHE = "fairseq_depthwise"


class StackDecoder(Stack, FairseqIncrementalDecoder):
    """Token embedding, a stack of decoder layers, and the projection to the vocabulary.

    The projection may share the embedding's weights.
    """

    def __init__(
        self,
        dictionary: Dictionary,
        config: EncoderDecoderConfig,
        embedding: TokenEmbedding,
        layers: list[nn.Module],
        connection: Connection,
    ) -> None:
        super().__init__(dictionary)
        # Stack: sets self.embedding, self.layers and self.connection.
        self.set_up("decoder", config, embedding, layers, connection)

        # Share the embedding's weights, or initialize in the same way.
        embedding_weight = embedding.tokens.weight
        self.output_projection = nn.Linear(embedding_weight.size(1), embedding_weight.size(0), bias=False)
        if config.share_decoder_input_output_embed or config.share_all_embeddings:
            self.output_projection.weight = embedding_weight
        else:
            nn.init.normal_(self.output_projection.weight, mean=0, std=embedding_weight.size(1) ** -0.5)

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
        scored: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Compute next-token scores (B x T x V), or features (B x T x C) with ``features_only``.

        Args:
            prev_output_tokens: B x T, shifted by one as fairseq does it.
            encoder_out: what :class:`StackEncoder` returns.
            incremental_state: fairseq's decoding state; only the last position is computed then, and T is 1.
            full_context_alignment: no causal mask, for the alignment of a finished sentence.
            alignment_layer: the layer, counted from 0, whose cross-attention is returned. By default this is the last
                when whole sentences are evaluated, and none in training and in incremental decoding, where nothing
                uses it.
            alignment_heads: average over this number of heads; by default over all.
            scored: B x T mask of the positions to project; the scores are then M x V for the M True positions.

        Returns:
            the scores, and ``{"attn": [B x T x S or None], "inner_states": [L + 1 times T x B x C]}``.
        """
        features, extra = self.extract_features(
            prev_output_tokens, encoder_out, incremental_state, full_context_alignment, alignment_layer, alignment_heads
        )
        if scored is not None:
            features = features[scored]  # M x C
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
        """Compute what :meth:`forward` returns with ``features_only``."""
        if alignment_layer is None and not self.training and incremental_state is None:
            alignment_layer = len(self.layers) - 1
        embedded = self.embedding(prev_output_tokens, incremental_state=incremental_state)  # T x B x C

        # Whole sentences attend to the encoder's output; incremental decoding attends to keys and values in its cache.
        layer_arguments: dict[str, Any]
        if incremental_state is None:
            source, padding = _select_rows(encoder_out)
            self_padding = self._find_visible_padding(prev_output_tokens, full_context_alignment)
            layer_arguments = {
                "encoder_output": source,
                "encoder_padding": padding,
                "self_padding": self_padding,
                "causal": not full_context_alignment,
            }
        else:
            cache = self._get_cache(incremental_state, encoder_out, prev_output_tokens.size(0))
            cache.begin_step()
            layer_arguments = {"encoder_output": cache.source, "cache": cache}

        output, inner_states, weights = self.run_layers(embedded, alignment_layer, **layer_arguments)
        if weights is not None:
            weights = weights[:alignment_heads].float().mean(dim=0)  # heads x B x T x S -> B x T x S
        return output.transpose(0, 1), {"attn": [weights], "inner_states": inner_states}

    def run_layers(
        self, embedded: Tensor, alignment_layer: int | None = None, **layer_arguments: Any
    ) -> tuple[Tensor, list[Tensor], Tensor | None]:
        """Return the stack's output (T x B x C), the embedding and each layer's output, and attention weights.

        The weights (heads x B x T x S or None) are those of ``alignment_layer``. Further keyword arguments are passed
        to every layer.
        """
        weights: Tensor | None = None

        def run_layer(layer: Callable[..., Any], index: int, layer_input: Any) -> Any:
            nonlocal weights
            output, layer_weights = layer(layer_input, need_weights=index == alignment_layer, **layer_arguments)
            if layer_weights is not None:
                weights = layer_weights
            return output

        output, inner_states = self.run(embedded, run_layer)
        return output, inner_states, weights

    def output_layer(self, features: Tensor) -> Tensor:
        """Project features (B x T x C) to scores (B x T x V)."""
        return self.output_projection(features)

    def reorder_incremental_state_scripting(self, incremental_state: dict[str, Any], new_order: Tensor) -> None:
        """Follow the beam search: row n continues the old row ``new_order[n]``.

        fairseq's own method looks for state in every module; here there is one cache.
        """
        if _CACHE in incremental_state:
            incremental_state[_CACHE].reorder(new_order)

    def make_generation_fast_(self, **_: Any) -> None:
        """Pack the weights once, before generation (fairseq's hook)."""
        prepack(self, "output_projection")

    def _find_visible_padding(self, tokens: Tensor, full_context: bool) -> Tensor | None:
        """Return the padding (B x T) that self-attention could see, or None.

        Padding on the right lies in the future of every other position, so the causal mask hides it already.
        """
        padding = tokens.eq(self.dictionary.pad())
        # Under the causal mask only padding on the left is visible, and then column 0 has some.
        visible = padding if full_context else padding[:, 0]
        return padding if visible.any() else None

    @staticmethod
    def _get_cache(incremental_state: dict[str, Any], encoder_out: dict[str, list[Tensor]], rows: int) -> DecodingCache:
        """Return the cache of earlier steps; create it at the first."""
        if _CACHE not in incremental_state:
            output = encoder_out["encoder_out"][0]
            padding = encoder_out["encoder_padding_mask"][0]
            if encoder_out["rows"]:
                sentence_of_row = encoder_out["rows"][0]
            else:
                sentence_of_row = torch.arange(rows, device=output.device)
            incremental_state[_CACHE] = DecodingCache(output, padding if padding.any() else None, sentence_of_row)
        cache: DecodingCache = incremental_state[_CACHE]
        return cache


def _select_rows(encoder_out: dict[str, list[Tensor]]) -> tuple[Tensor, Tensor | None]:
    """Return the encoder's output (S x N x C) and padding (N x S, or None without any) for every row."""
    output = encoder_out["encoder_out"][0]
    padding = encoder_out["encoder_padding_mask"][0]
    # Rows of a beam search that are evaluated as whole sentences read a copy of their sentence's output.
    for rows in encoder_out["rows"]:
        output, padding = output.index_select(1, rows), padding.index_select(0, rows)
    return output, padding if padding.any() else None
