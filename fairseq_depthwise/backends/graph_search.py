"""fairseq's beam search over graphs (:mod:`fairseq_depthwise.backends.graphs`).

A step returns the 2k best candidates of each sentence; Python only sorts out those that end it. The hypotheses are
those of fairseq's ``SequenceGenerator``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_compat import UserError
from fairseq_depthwise.backends.graphs import FREE
from fairseq_depthwise.modules.decoding.static_cache import UNWRITTEN

#: Number of target positions by which the capacity grows.
_CAPACITY = 16

#: Rows of finished sentences are dropped once at most this share of the rows is still in use.
_DENSE = 7 / 8

#: Tensors of a layer: own keys and values, cross keys and values.
_OWN, _PER_LAYER = 2, 4


@dataclass
class Graphs:
    """The two functions of a search; :class:`EncoderGraph` and :class:`StepGraph` describe their tensors.

    Attributes:
        encode: returns padding, and cross keys and values of each layer.
        step: returns totals, numbers, ancestors, and, unless it writes in place, the newest keys and values.
    """

    encode: Callable[..., Sequence[Tensor]]
    step: Callable[..., Sequence[Tensor]]


@dataclass(frozen=True)
class SearchLimits:
    """How hypotheses are searched.

    Attributes:
        beam: k.
        length_penalty: a hypothesis's log-probability is divided by its length to this power.
        max_length: the most tokens, not counting the end of the sentence.
        min_length: the fewest tokens.
        start: the decoder's first token, which is not part of a hypothesis.
        prefix: what every hypothesis begins with.
    """

    beam: int
    length_penalty: float
    max_length: int
    start: int
    prefix: tuple[int, ...] = ()
    min_length: int = 1


@dataclass
class _Sentence:
    """The search for a sentence: finished hypotheses, and origins, tokens and totals of the k beams in each step."""

    finished: list[dict[str, Any]] = field(default_factory=list)
    history: list[tuple[list[int], list[int], list[float]]] = field(default_factory=list)

    def finish(self, origin: int, token: int, total: float, penalty: float) -> None:
        # Follow the origins from the last token back to the first.
        tokens, totals = [token], [total]
        for origins, continued, sums in reversed(self.history):
            tokens.append(continued[origin])
            totals.append(sums[origin])
            origin = origins[origin]
        tokens.reverse()
        totals = [*reversed(totals), 0.0]  # the sum before the first token comes last, at index -1
        # The log-probability of a token is the increase of the running sum.
        scores = [totals[place] - totals[place - 1] for place in range(len(tokens))]
        # As in fairseq, the length includes the end of the sentence.
        score = total / len(tokens) ** penalty
        self.finished.append(
            {"tokens": torch.tensor(tokens), "score": score, "positional_scores": torch.tensor(scores)}
        )


class GraphSearch:
    """A beam search over graphs, with a vocabulary of V in which ``eos`` ends a sentence."""

    def __init__(self, graphs: Graphs, *, eos: int, vocabulary: int) -> None:
        self.graphs = graphs
        self.eos = eos
        self.vocabulary = vocabulary

    @torch.inference_mode()
    def __call__(self, source_tokens: Tensor, limits: SearchLimits) -> list[list[dict[str, Any]]]:
        """Return the hypotheses of each sentence of ``source_tokens`` (B x S), the best first; UserError for NaN.

        Like fairseq's, they have ``tokens`` with the end of the sentence, their log-probabilities
        ``positional_scores``, and ``score``, the sum of these after the length penalty.
        """
        beams = limits.beam
        sentences = [_Sentence() for _ in range(source_tokens.size(0))]
        # Once per sentence: all of its beams share the source's keys and values.
        padding, *cross = self.graphs.encode(source_tokens)
        state = SearchState.first(padding, cross, beams)
        active = list(sentences)
        # At first all beams are the same, and only one of them counts.
        first = (list(range(beams)), [limits.start] * beams, [0.0] + [-math.inf] * (beams - 1))
        beams_of_sentences = [first for _ in active]
        shortest = torch.tensor([limits.min_length])
        for step in range(limits.max_length + 1):
            state.reach(step)
            # B x k each.
            origins, tokens, totals = (torch.tensor(part) for part in zip(*beams_of_sentences, strict=True))
            # best and numbers: B x 2k.
            best, numbers, state.ancestors, *newest_states = self.graphs.step(
                tokens,
                origins,
                totals,
                state.ancestors,
                torch.tensor([step]),
                torch.tensor([self._forced_token(step, limits)]),
                shortest,
                state.padding,
                *state.layers,
            )
            state.write(step, newest_states)

            # Hypotheses that end are finished; the k best others go on.
            beams_of_sentences = []
            for sentence, scores, candidates in zip(active, best.tolist(), numbers.tolist(), strict=True):
                beams_of_sentences.append(self._sort_out(sentence, scores, candidates, limits))
            unfinished = [place for place, sentence in enumerate(active) if len(sentence.finished) < beams]
            if not unfinished or step == limits.max_length:
                break
            # With enough rows to drop, smaller states are worth a copy of them.
            if len(unfinished) <= _DENSE * len(active):
                state.select(torch.tensor(unfinished))
                active = [active[place] for place in unfinished]
                beams_of_sentences = [beams_of_sentences[place] for place in unfinished]
        return [sorted(sentence.finished, key=_negative_score) for sentence in sentences]

    def _forced_token(self, step: int, limits: SearchLimits) -> int:
        """Return the token with which all hypotheses must continue, or ``FREE``."""
        # As in fairseq, every hypothesis ends at the maximum length, even within the prefix.
        if step == limits.max_length:
            return self.eos
        return limits.prefix[step] if step < len(limits.prefix) else FREE

    def _sort_out(
        self, sentence: _Sentence, scores: list[float], candidates: list[int], limits: SearchLimits
    ) -> tuple[list[int], list[int], list[float]]:
        """Finish the hypotheses that end, and return origins, tokens and totals of the k best that do not."""
        origins: list[int] = []
        tokens: list[int] = []
        totals: list[float] = []
        if math.isnan(scores[0]):
            raise UserError("the model's scores are NaN; give another checkpoint")
        # At most k of the 2k candidates end, one per beam, so at least k remain to go on.
        for rank, (total, candidate) in enumerate(zip(scores, candidates, strict=True)):
            origin, token = divmod(candidate, self.vocabulary)
            if token == self.eos and total > -math.inf:
                # As in fairseq, a hypothesis can end only as one of the k best candidates.
                if rank < limits.beam and len(sentence.finished) < limits.beam:
                    sentence.finish(origin, token, total, limits.length_penalty)
            elif len(tokens) < limits.beam:
                origins.append(origin)
                tokens.append(token)
                totals.append(total)
        continued = origins, tokens, totals
        sentence.history.append(continued)
        return continued


def _negative_score(hypothesis: dict[str, Any]) -> float:
    score: float = hypothesis["score"]
    return -score


@dataclass
class SearchState:
    """What the steps of a search read and write: padding (B x S), ancestors (B x k x T), four tensors for each layer.

    These are its own keys and values and its cross keys and values.
    """

    padding: Tensor
    ancestors: Tensor
    layers: list[Tensor]

    @classmethod
    def first(cls, padding: Tensor, cross: Sequence[Tensor], beams: int) -> SearchState:
        """Return the state before the first step, given the encoder's outputs."""
        layers = []
        for keys, values in zip(cross[::2], cross[1::2], strict=True):
            sentences, heads, _, width = keys.shape
            # Own keys and values start empty; the cross ones are the encoder's outputs.
            layers += [keys.new_zeros(sentences, heads, _CAPACITY, beams, width) for _ in range(_OWN)] + [keys, values]
        ancestors = torch.full((padding.size(0), beams, _CAPACITY), UNWRITTEN, device=padding.device)
        return cls(padding, ancestors, layers)

    def reach(self, step: int) -> None:
        """Make room for a position, counted from 0."""
        if step < self.ancestors.size(2):
            return
        self.ancestors = F.pad(self.ancestors, (0, _CAPACITY), value=UNWRITTEN)
        for place, buffer in enumerate(self.layers):
            if place % _PER_LAYER < _OWN:
                # B x heads x T x k x head_dim; F.pad takes two numbers per dimension, from the last one.
                self.layers[place] = F.pad(buffer, (0, 0, 0, 0, 0, _CAPACITY))

    def write(self, step: int, newest: Sequence[Tensor]) -> None:
        """Write the keys and values that a step returned for its position; none if it writes in place."""
        for place, tensor in enumerate(newest):
            # Each layer has four tensors, of which the first two are its own keys and values.
            self.layers[place // _OWN * _PER_LAYER + place % _OWN][:, :, step] = tensor

    def select(self, sentences: Tensor) -> None:
        """Keep only these sentences."""
        self.padding, self.ancestors = self.padding[sentences], self.ancestors[sentences]
        self.layers = [tensor[sentences] for tensor in self.layers]
