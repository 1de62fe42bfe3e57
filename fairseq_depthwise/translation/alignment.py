"""Which source words the words of a translation attend to, in the tokenized text before it is split into subwords."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from fairseq.data import data_utils
from fairseq.models import BaseFairseqModel
from torch import Tensor

from fairseq_compat import UserError
from fairseq_depthwise.translation.text_codec import MARKS


def words_of(tokens: Sequence[str], subwords: str | None) -> tuple[list[int], list[str]]:
    """Return the number of each token's word, from 0, and the words without the marks of ``subwords``, if any."""
    begin, end = MARKS.get(subwords or "", ("", ""))
    numbers: list[int] = []
    words: list[str] = []
    for place, token in enumerate(tokens):
        # SentencePiece marks tokens that begin a word, BPE marks those that do not end one.
        if begin:
            begins_word = token.startswith(begin)
        else:
            continues = end != "" and place > 0 and tokens[place - 1].endswith(end)
            begins_word = not continues
        if place == 0 or begins_word:
            words.append("")
        words[-1] += token.removeprefix(begin).removesuffix(end)
        numbers.append(len(words) - 1)
    return numbers, words


@torch.no_grad()
def cross_attention(
    models: Sequence[BaseFairseqModel], batch: dict[str, Any], hypotheses: Sequence[Sequence[Tensor]], start: int
) -> list[list[Tensor]]:
    """Return how much each token of each hypothesis attends to each source token: T x S for a hypothesis.

    As in fairseq, finished hypotheses go through the decoder once more. The attention is that of its last layer, or of
    the layer that was trained to align, averaged over heads and models.
    """
    if not any(hypotheses):
        return [[] for _ in hypotheses]
    source = batch["net_input"]["src_tokens"]
    pad, eos = models[0].decoder.dictionary.pad(), models[0].decoder.dictionary.eos()

    # All hypotheses in one batch, with the row of each one's sentence.
    # The decoder reads the start token, then all tokens of the hypothesis but the last.
    first_token = torch.tensor([start])
    rows: list[int] = []
    decoder_inputs: list[Tensor] = []
    for row, of_sentence in enumerate(hypotheses):
        for tokens in of_sentence:
            rows.append(row)
            decoder_inputs.append(torch.cat([first_token, tokens[:-1].cpu()]))
    previous = data_utils.collate_tokens(decoder_inputs, pad, eos).to(source.device)
    sentence_rows = torch.tensor(rows, device=source.device)

    total = torch.zeros(())
    for model in models:
        # All other models return their last layer's attention by default.
        options = {}
        if hasattr(model, "alignment_layer"):  # fairseq's own model that is trained to align
            for name in ("alignment_layer", "alignment_heads", "full_context_alignment"):
                options[name] = getattr(model, name)
        encoded = model.encoder.forward_torchscript(batch["net_input"])
        # From one row per sentence to one per hypothesis: S x B x C -> S x N x C.
        encoded = model.encoder.reorder_encoder_out(encoded, sentence_rows)
        _, extra = model.decoder(previous, encoder_out=encoded, features_only=True, **options)
        # N x T x S
        (weights,) = extra["attn"]
        if weights is None:
            raise UserError("--print-alignment: the model's last decoder layer is linear and attends to nothing")
        total = total + weights.float().cpu() / len(models)

    # Back to the hypotheses of each sentence, without padding.
    attention: list[list[Tensor]] = [[] for _ in hypotheses]
    for row, weights, tokens in zip(rows, total, decoder_inputs, strict=True):
        attention[row].append(weights[: len(tokens)])
    return attention


def hard_alignment(attention: Tensor, source: Sequence[int], target: Sequence[int]) -> list[tuple[int, int]]:
    """Return pairs of source and target words: for each target token, the word that it attends to most (T x S)."""
    best_places = attention.argmax(dim=1).tolist()
    pairs = [(source[place], word) for place, word in zip(best_places, target, strict=True)]
    return list(dict.fromkeys(pairs))  # several subwords of a word may give the same pair


def soft_alignment(attention: Tensor, source: Sequence[int], target: Sequence[int], sizes: tuple[int, int]) -> Tensor:
    """Return the attention of target words x source words: summed over source tokens, averaged over target tokens."""
    target_size, source_size = sizes
    of_target_words = _membership(target, target_size)
    of_source_words = _membership(source, source_size)
    # (target words x T) @ (T x S) @ (S x source words)
    return (of_target_words / of_target_words.sum(dim=0)).T @ attention @ of_source_words


def _membership(words: Sequence[int], count: int) -> Tensor:
    """Return a matrix of tokens x words that is 1 where a token belongs to a word."""
    return (torch.tensor(words, dtype=torch.long)[:, None] == torch.arange(count)).float()
