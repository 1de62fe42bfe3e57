"""The two graphs that a beam search consists of: the encoder, and one step of all hypotheses.

Both are functions of tensors, for one model or several whose probabilities are averaged; they are compiled and
exported. :mod:`fairseq_depthwise.backends.graph_search` calls them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_depthwise.modules.decoding.static_cache import LayerState, StaticCache
from fairseq_depthwise.modules.stack import prepare_layers

#: In place of the token with which all hypotheses must continue: any token.
FREE = -1

#: The most tokens in a group, whose maximum is looked at first in a search for the best tokens. All groups have one
#: size, a divisor of the vocabulary's; fairseq pads vocabularies to multiples of 8.
_GROUP = 64


class EncoderGraph(nn.Module):
    """From source tokens to all that the steps of the search read; ``models`` are in evaluation mode."""

    def __init__(self, models: Sequence[Any]) -> None:
        super().__init__()
        self.encoders = nn.ModuleList(model.encoder for model in models)
        self.cross_attentions = []
        # In evaluation mode these do not depend on the sentence. One of them may be an order of units, found by scipy.
        self.prepared = []
        for model in models:
            self.cross_attentions.append([layer.cross_attention for layer in model.decoder.layers])
            table = model.encoder.embedding.tokens.weight
            # Only the width, type and device of this T x B x C tensor matter.
            self.prepared.append(prepare_layers(model.encoder.layers, table.new_zeros(1, 1, table.size(1)), None))

    def forward(self, source_tokens: Tensor) -> tuple[Tensor, ...]:
        """Map source tokens (B x S) to padding (B x S), and keys and values of each cross-attention of each model.

        Keys and values are B x heads x S x head_dim.
        """
        encoders: Any = self.encoders
        # One mask for all models: an ensemble shares its dictionaries.
        padding = source_tokens.eq(encoders[0].dictionary.pad())
        outputs = [padding]
        for encoder, attentions, prepared in zip(encoders, self.cross_attentions, self.prepared, strict=True):
            encoded, _ = encoder.run_layers(encoder.embedding(source_tokens).contiguous(), padding, prepared)
            for attention in attentions:
                keys, values = attention.project_encoder_output(encoded)
                # Every step of the search reads these: one copy now is cheaper than strided reads in all of them.
                outputs += [keys.contiguous(), values.contiguous()]
        return tuple(outputs)


class StepGraph(nn.Module):
    """One step of a beam search with B sentences of k hypotheses each; ``models`` are in evaluation mode.

    The newest keys and values are returned, or with ``in_place`` written into the tensors of the state.
    """

    def __init__(self, models: Sequence[Any], *, in_place: bool) -> None:
        super().__init__()
        self.decoders = nn.ModuleList(model.decoder for model in models)
        self.in_place = in_place

    def forward(
        self,
        tokens: Tensor,
        origins: Tensor,
        totals: Tensor,
        ancestors: Tensor,
        newest: Tensor,
        forced: Tensor,
        shortest: Tensor,
        padding: Tensor,
        *states: Tensor,
    ) -> tuple[Tensor, ...]:
        """Extend every hypothesis by its newest token, and find the 2k best ways to continue.

        Args:
            tokens: B x k, the newest token of each hypothesis.
            origins: B x k, the beam of the previous step that each hypothesis continues.
            totals: B x k, the sum of its log-probabilities so far.
            ancestors: B x k x T, as in :class:`StaticCache`, of the previous step.
            newest: 1, the position of ``tokens``, counted from 0.
            forced: 1, the token with which every hypothesis must continue; ``FREE`` for any.
            shortest: 1, the minimum number of tokens of a hypothesis.
            padding: B x S, True at the source's padding.
            states: four tensors for each layer of each model, as :class:`LayerState` has them.

        Returns:
            the totals of the candidates (B x 2k, the best first), their numbers (B x 2k: beam times V plus token), the
            new ancestors, and, unless they are written in place, the newest keys and values of each layer (B x heads x
            k x head_dim each), which belong at position ``newest``.
        """
        sentences, beams, capacity = ancestors.shape
        # A hypothesis that continues beam o inherits the ancestors of beam o.
        ancestors = ancestors.gather(1, origins[:, :, None].expand(sentences, beams, capacity))

        # 1. The log-probabilities of all tokens, B * k x V of each model.
        decoders: Any = self.decoders
        layers = iter([LayerState(*four) for four in zip(*[iter(states)] * 4, strict=True)])
        newest_states: list[Tensor] = []
        log_probs: list[Tensor] = []
        for decoder in decoders:
            # The states of all models form one flat sequence; take those of this model.
            layers_of_model = list(islice(layers, len(decoder.layers)))
            cache = StaticCache(layers_of_model, ancestors, newest, padding, in_place=self.in_place)
            # 1 x (B k) x C: one target position of all hypotheses.
            embedded = decoder.embedding.at(tokens.reshape(sentences * beams), newest)
            output, _, _ = decoder.run_layers(embedded, encoder_output=None, cache=cache)
            # (B k) x 1 x V
            scores = decoder.output_layer(output.transpose(0, 1))
            log_probs.append(decoder.get_normalized_probs((scores, None), log_probs=True, sample=None)[:, 0])
            if not self.in_place:
                for keys, values in cache.written:
                    newest_states += [keys, values]
        mean = log_probs[0]
        if len(log_probs) > 1:
            # The log of the mean probability, as fairseq's ensembles compute it.
            mean = torch.logsumexp(torch.stack(log_probs), dim=0) - math.log(len(log_probs))

        # 2. The best candidates among the tokens that may follow.
        vocabulary = torch.arange(len(decoders[0].dictionary), device=tokens.device)
        allowed = self._allowed(vocabulary, newest, forced, shortest)
        # In float32: bfloat16 would round away the difference between two long hypotheses.
        sums = mean.float().view(sentences, beams, -1) + torch.where(allowed, 0.0, -torch.inf)
        best, numbers = best_candidates(sums + totals[:, :, None], 2 * beams)

        # 3. For the next step: the beam that each of the hypotheses is now.
        # k x 1: at this position, hypothesis i is beam i from now on.
        beam = torch.arange(beams, device=tokens.device)[:, None]
        ancestors = torch.where(torch.arange(capacity, device=tokens.device).eq(newest), beam, ancestors)
        return best, numbers, ancestors, *newest_states

    def _allowed(self, token: Tensor, newest: Tensor, forced: Tensor, shortest: Tensor) -> Tensor:
        """Return whether each token (V) may follow: never padding, no early end, and only the forced token, if any."""
        decoders: Any = self.decoders
        dictionary = decoders[0].dictionary
        # Not | and &, which trace as __or__ and __and__: the ONNX exporter does not support these.
        may_end = token.ne(dictionary.eos()).logical_or(newest.ge(shortest))
        free = token.ne(dictionary.pad()).logical_and(may_end)
        return forced.eq(FREE).logical_and(free).logical_or(token.eq(forced))


def best_candidates(totals: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the ``count`` greatest of each sentence (B x k x V), and their numbers: beam times V plus token.

    Only the ``count`` groups of tokens with the greatest maxima can hold them. So one pass over all numbers is followed
    by a sort of a few, which is several times as fast as sorting all. ``count`` is at most 2k.
    """
    sentences, beams, size = totals.shape
    width = math.gcd(size, _GROUP, size // 2)  # at least two groups per beam, so that there are 2k
    groups = size // width  # token t is in group t % groups
    # B x k x groups
    maxima = totals.unflatten(2, (width, groups)).amax(dim=2)
    # B x 2k, numbers up to k * groups; divided by ``groups`` they give the beam.
    best_groups = maxima.reshape(sentences, beams * groups).topk(count).indices
    # The tokens of a group are ``groups`` apart: B x 2k x width candidates remain.
    members = torch.arange(width, device=totals.device) * groups
    numbers = (best_groups // groups * size + best_groups % groups)[:, :, None] + members
    numbers = numbers.reshape(sentences, -1)
    best, places = totals.reshape(sentences, beams * size).gather(1, numbers).topk(count)
    return best, numbers.gather(1, places)
