"""A beam search whose steps are replayed: on a GPU each is one CUDA graph, and Python does nothing for each layer.

A graph belongs to one shape, so there are few shapes: sentences and positions are rounded up to powers of two.
Sentences keep their place when others are finished; once no more than half of the places are taken, the search moves to
a graph of half the size.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from fairseq_depthwise.modules.decoding.static_cache import StaticCache, StaticShape

log = logging.getLogger(__name__)

#: Target and source positions that there is room for at least.
_LEAST_ROOM = 32

#: Graphs, with the keys and values of one search each, that are kept for searches to come.
_MOST_GRAPHS = 24


class Decoder(Protocol):
    """What a step needs of ``StackDecoder``."""

    embedding: Any
    layers: nn.ModuleList

    def run_layers(self, embedded: Tensor, **attend: Any) -> tuple[Tensor, list[Tensor], Tensor | None]: ...

    def output_layer(self, features: Tensor) -> Tensor: ...

    def parameters(self) -> Any: ...


class StaticStep:
    """One step of a decoder in fixed tensors; a CUDA graph, once it is captured.

    Args:
        decoder: in evaluation mode.
        shape: of the search.
        like: a tensor of the type and on the device of the encoder's output.
    """

    def __init__(self, decoder: Decoder, shape: StaticShape, like: Tensor) -> None:
        self.decoder = decoder
        cross_attentions: list[Any] = [layer.cross_attention for layer in decoder.layers]
        decoder.embedding.reach(shape.room)
        dtype = torch.promote_types(like.dtype, torch.float32) if like.device.type == "cpu" else like.dtype
        self.cache = StaticCache(shape, cross_attentions, dtype=dtype, device=like.device)
        self.tokens = torch.zeros(shape.rows, dtype=torch.long, device=like.device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._scores: Tensor | None = None
        #: The embedding's tables grow with the longest sentence; those that the graph reads must stay.
        self._kept: list[Tensor] = []

    def run(self) -> Tensor:
        """Scores (N x 1 x V) after ``tokens`` at the cache's newest position; overwritten by the next step."""
        if self.tokens.device.type != "cuda":
            return self._compute()
        if self._graph is None:
            self._capture()
        assert self._graph is not None
        assert self._scores is not None
        self._graph.replay()
        return self._scores

    def _compute(self) -> Tensor:
        self.cache.begin_step()
        embedded = self.decoder.embedding.at(self.tokens, self.cache.newest)
        output, _, _ = self.decoder.run_layers(embedded, encoder_output=None, cache=self.cache)
        return self.decoder.output_layer(output.transpose(0, 1))

    def _capture(self) -> None:
        """Run the step on a stream of its own, so that everything is laid out and chosen, and then record it."""
        here, aside = torch.cuda.current_stream(), torch.cuda.Stream()
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            for _ in range(2):
                self._compute()
        here.wait_stream(aside)
        self._kept = list(self.decoder.embedding.buffers())
        graph = torch.cuda.CUDAGraph()
        # Other threads, such as the one that pins a loader's memory, may use the GPU meanwhile.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._scores = self._compute()
        self._graph = graph


class StaticSteps:
    """The steps of a decoder, by shape; those that were not used for longest are forgotten.

    Args:
        decoder: in evaluation mode.
    """

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self._steps: OrderedDict[StaticShape, StaticStep] = OrderedDict()
        self._made_from: tuple[object, ...] = ()
        #: The search that is under way: all searches use the same tensors.
        self.search: StaticSearch | None = None

    def step(self, shape: StaticShape, like: Tensor) -> StaticStep:
        """The step of a shape, made if there is none, or if the weights have changed."""
        weights = tuple(
            (one.data_ptr(), one.dtype, 0 if one.is_inference() else one._version) for one in self.decoder.parameters()
        )
        if weights != self._made_from:
            self._steps.clear()
            self._made_from = weights
        if shape not in self._steps:
            self._steps[shape] = StaticStep(self.decoder, shape, like)
        self._steps.move_to_end(shape)
        while len(self._steps) > _MOST_GRAPHS:
            self._steps.popitem(last=False)
        return self._steps[shape]


class StaticSearch:
    """The state of one beam search; only one of a decoder's can be under way.

    Args:
        steps: the decoder's.
        source: S x B x C, the encoder's output, once per sentence.
        padding: B x S, True at padding; None where there is none.
        beams: k; row ``b * k + j`` is beam j of sentence b.
    """

    def __init__(self, steps: StaticSteps, source: Tensor, padding: Tensor | None, beams: int) -> None:
        self._steps = steps
        steps.search = self
        self._like = source
        count = source.size(1)
        shape = StaticShape(_power(count), beams, _LEAST_ROOM, _power(source.size(0), _LEAST_ROOM))
        self._step = steps.step(shape, source)
        self._step.cache.begin_search(source, padding)
        #: The place of each sentence that is still searched for, B, and of each of its rows, N.
        self._places = torch.arange(count, device=source.device)
        self._rows = torch.arange(count * beams, device=source.device)
        self._done = 0

    def step(self, tokens: Tensor) -> Tensor:
        """The newest tokens (N) to scores (N x 1 x V), which the next step overwrites.

        Raises:
            ValueError: another search with the same decoder has begun meanwhile.
        """
        if self._steps.search is not self:
            raise ValueError("another search of the same decoder has begun; search without static steps")
        cache = self._step.cache
        if self._done == cache.shape.room:
            self._move(sentences=cache.shape.sentences, room=2 * cache.shape.room)
            cache = self._step.cache
        self._step.tokens.index_copy_(0, self._rows, tokens)
        cache.newest.fill_(self._done)
        self._done += 1
        scores = self._step.run()
        return scores if self._rows.size(0) == cache.shape.rows else scores.index_select(0, self._rows)

    def reorder(self, new_order: Tensor) -> None:
        """Follow the search: row n goes on from the old row ``new_order[n]`` (N').

        Raises:
            ValueError: rows leave their sentence, which no search of fairseq's does.
        """
        cache = self._step.cache
        beams = cache.beams
        sentences = torch.div(new_order, beams, rounding_mode="floor").view(-1, beams)
        if not bool((sentences == sentences[:, :1]).all()):
            raise ValueError("a hypothesis goes on from one of another sentence; search without static steps")
        before = self._rows[new_order]
        self._places = self._places[sentences[:, 0]]
        self._rows = (self._places[:, None] * beams + torch.arange(beams, device=new_order.device)).flatten()
        cache.ancestors.index_copy_(0, self._rows, cache.ancestors[before])
        if 2 * self._places.size(0) <= cache.shape.sentences and self._done:
            self._move(sentences=_power(self._places.size(0)), room=cache.shape.room)

    def _move(self, *, sentences: int, room: int) -> None:
        """Go on in another shape."""
        before = self._step.cache
        shape = StaticShape(sentences, before.beams, room, before.shape.source_room)
        self._step = self._steps.step(shape, self._like)
        self._step.cache.take_over(before, self._places)
        self._places = torch.arange(self._places.size(0), device=self._places.device)
        self._rows = torch.arange(self._rows.size(0), device=self._rows.device)


def _power(number: int, least: int = 1) -> int:
    """The smallest power of two that is no less than the number."""
    return max(least, 1 << max(number - 1, 0).bit_length())
