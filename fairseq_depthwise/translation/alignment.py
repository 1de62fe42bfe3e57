"""Which source words the words of a translation attend to: of the tokenized text, before it is split into subwords."""

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
    """Return the number of each token's word, from 0, and the words without the marks of a kind of subwords, if any."""
    begin, end = MARKS.get(subwords or "", ("", ""))
    numbers: list[int] = []
    words: list[str] = []
    for place, token in enumerate(tokens):
        if place == 0 or (token.startswith(begin) if begin else not (end and tokens[place - 1].endswith(end))):
            words.append("")
        words[-1] += token.removeprefix(begin).removesuffix(end)
        numbers.append(len(words) - 1)
    return numbers, words


@torch.no_grad()
def cross_attention(
    models: Sequence[BaseFairseqModel], batch: dict[str, Any], hypotheses: Sequence[Sequence[Tensor]], start: int
) -> list[list[Tensor]]:
    """Return how much each token of each hypothesis attends to each source token (B x S), T x S for a hypothesis.

    As fairseq does for alignments, the finished hypotheses pass the decoder once more. It is the attention of its last
    layer, or of the one that was trained for it, as the mean over heads and models.
    """
    if not any(hypotheses):
        return [[] for _ in hypotheses]
    source = batch["net_input"]["src_tokens"]
    pad, eos = models[0].decoder.dictionary.pad(), models[0].decoder.dictionary.eos()
    rows = torch.tensor([row for row, found in enumerate(hypotheses) for _ in found], device=source.device)
    begin = torch.tensor([start])
    shifted = [torch.cat([begin, tokens[:-1].cpu()]) for found in hypotheses for tokens in found]
    previous = data_utils.collate_tokens(shifted, pad, eos).to(source.device)
    total = torch.zeros(())
    for model in models:
        options = {}
        if hasattr(model, "alignment_layer"):  # fairseq's own model that is trained to align
            names = ("alignment_layer", "alignment_heads", "full_context_alignment")
            options = {name: getattr(model, name) for name in names}
        encoded = model.encoder.reorder_encoder_out(model.encoder.forward_torchscript(batch["net_input"]), rows)
        _, extra = model.decoder(previous, encoder_out=encoded, features_only=True, **options)
        (weights,) = extra["attn"]
        if weights is None:
            raise UserError("--print-alignment: the model's last decoder layer is linear and attends to nothing")
        total = total + weights.float().cpu() / len(models)
    each = iter([weights[: len(tokens)] for weights, tokens in zip(total, shifted, strict=True)])
    return [[next(each) for _ in found] for found in hypotheses]


def hard_alignment(attention: Tensor, source: Sequence[int], target: Sequence[int]) -> list[tuple[int, int]]:
    """Return pairs of words: of each target token and the source token that it attends to most (T x S)."""
    best = attention.argmax(dim=1).tolist()
    pairs = ((source[place], word) for place, word in zip(best, target, strict=True))
    return list(dict.fromkeys(pairs))  # several subwords of a word may agree


def soft_alignment(attention: Tensor, source: Sequence[int], target: Sequence[int], sizes: tuple[int, int]) -> Tensor:
    """Return target words x source words: the sum over a source word's tokens, the mean over a target word's."""
    target_words, source_words = (
        (torch.tensor(words, dtype=torch.long)[:, None] == torch.arange(size)).float()  # tokens x words
        for words, size in zip((target, source), sizes, strict=True)
    )
    return (target_words / target_words.sum(dim=0)).T @ attention @ source_words
