"""The encoder of every family: embed and run a stack of layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models import FairseqEncoder
from torch import Tensor, nn

from fairseq_depthwise.models.base.config import EncoderDecoderConfig
from fairseq_depthwise.modules.embedding import TokenEmbedding
from fairseq_depthwise.modules.stack import Connection, Stack, prepare_layers


class StackEncoder(Stack, FairseqEncoder):
    """Token embedding, a stack of encoder layers, and what the decoder attends to."""

    def __init__(
        self,
        dictionary: Dictionary,
        config: EncoderDecoderConfig,
        embedding: TokenEmbedding,
        layers: list[nn.Module],
        connection: Connection,
    ) -> None:
        super().__init__(dictionary)
        self.set_up("encoder", config, embedding, layers, connection)

    def forward(
        self, src_tokens: Tensor, src_lengths: Tensor | None = None, return_all_hiddens: bool = False
    ) -> dict[str, list[Tensor]]:
        """Encode a batch, B x T; with ``return_all_hiddens`` also return the embedding's and every layer's output.

        Returns:
            fairseq's encoder output: ``encoder_out`` [T x B x C], ``encoder_padding_mask`` [B x T],
            ``encoder_states`` [L + 1 times T x B x C] if asked for, ``src_lengths`` [B x 1]. ``rows`` is ours: empty,
            or [N], the sentence (of B) of each row of a beam search; see :meth:`reorder_encoder_out`.
        """
        padding = src_tokens.eq(self.dictionary.pad())  # B x T
        # Without a mask attention is faster, so layers get none unless a sentence is padded.
        layer_padding = padding if padding.any() else None
        embedded = self.embedding(src_tokens)  # T x B x C
        prepared = prepare_layers(self.layers, embedded, layer_padding)
        output, states = self.run_layers(embedded, layer_padding, prepared, keep_states=return_all_hiddens)
        return {
            "encoder_out": [output],
            "encoder_padding_mask": [padding],
            "encoder_embedding": [],
            "encoder_states": states,
            "src_tokens": [],
            "rows": [],
            "src_lengths": [padding.logical_not().sum(dim=1, keepdim=True, dtype=torch.int32)],
        }

    def run_layers(
        self,
        embedded: Tensor,
        padding: Tensor | None,
        prepared: Sequence[tuple[Tensor | None, ...]],
        keep_states: bool = False,
    ) -> tuple[Tensor, list[Tensor]]:
        """Return what :meth:`run` does; ``prepared``: further arguments for each layer, from ``prepare_layers``."""

        def call(layer: Callable[..., Tensor], index: int, layer_input: Any) -> Tensor:
            return layer(layer_input, padding, *prepared[index])

        return self.run(embedded, call, keep_states=keep_states)

    def reorder_encoder_out(self, encoder_out: dict[str, list[Tensor]], new_order: Tensor) -> dict[str, list[Tensor]]:
        """Let row n become the old row ``new_order[n]``; the beam search calls this at every step.

        Beams share their sentence's output, so only row numbers change, which the decoder reads.
        """
        rows = [old_rows.index_select(0, new_order) for old_rows in encoder_out["rows"]]
        return {**encoder_out, "rows": rows or [new_order]}
