"""A beam search whose steps are replayed: on a GPU each is one CUDA graph, and Python does nothing for each layer.

A graph belongs to one shape, so there are few shapes: sentences and positions are rounded up to powers of two.
Sentences keep their place when others are finished; once no more than half of the places are taken, the search moves to
a graph of half the size.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from fairseq_depthwise.modules.decoding.static_cache import UNWRITTEN, LayerState, StaticCache

log = logging.getLogger(__name__)

#: Target and source positions that there is capacity for at least.
_LEAST_CAPACITY = 32

#: Graphs, with the keys and values of one search each, that are kept for searches to come.
_MOST_GRAPHS = 24


class Decoder(Protocol):
    """What a step needs of ``StackDecoder``."""

    embedding: Any
    layers: nn.ModuleList

    def run_layers(self, embedded: Tensor, **attend: Any) -> tuple[Tensor, list[Tensor], Tensor | None]: ...

    def output_layer(self, features: Tensor) -> Tensor: ...

    def parameters(self) -> Any: ...


@dataclass(frozen=True)
class StaticShape:
    """The sizes that fix all shapes of a step.

    Attributes:
        sentences: B at most.
        beams: k.
        capacity: T, target positions.
        source_capacity: S at most.
    """

    sentences: int
    beams: int
    capacity: int
    source_capacity: int


class StaticStep:
    """One step of a decoder in fixed tensors; a CUDA graph, once it is captured.

    Args:
        decoder: in evaluation mode.
        shape: of the search.
        like: a tensor of the type and on the device of the encoder's output.
    """

    def __init__(self, decoder: Decoder, shape: StaticShape, like: Tensor) -> None:
        self.decoder = decoder
        self.shape = shape
        self.attentions: list[Any] = [layer.cross_attention for layer in decoder.layers]
        decoder.embedding.reach(shape.capacity)
        dtype = torch.promote_types(like.dtype, torch.float32) if like.device.type == "cpu" else like.dtype
        device, rows = like.device, (shape.sentences, shape.beams)
        lengths = 2 * [(shape.capacity, shape.beams)] + 2 * [(shape.source_capacity,)]
        self.states = []
        for attention in self.attentions:
            sizes = [(shape.sentences, attention.heads, *length, attention.head_dim) for length in lengths]
            self.states.append(LayerState(*(torch.zeros(size, dtype=dtype, device=device) for size in sizes)))
        self.tokens = torch.zeros(rows, dtype=torch.long, device=device)
        self.newest = torch.zeros(1, dtype=torch.long, device=device)
        self.ancestors = torch.full((*rows, shape.capacity), UNWRITTEN, device=device)
        self.padding = torch.ones(shape.sentences, shape.source_capacity, dtype=torch.bool, device=device)
        self._beam = torch.arange(shape.beams, device=device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._scores: Tensor | None = None
        #: The embedding's tables grow with the longest sentence; those that the graph reads must stay.
        self._kept: list[Tensor] = []

    def begin_search(self, source: Tensor, padding: Tensor | None) -> None:
        """Start anew with sentences whose encoder output is ``source`` (S x B x C), True at ``padding`` (B x S)."""
        length, count = source.shape[:2]
        self.ancestors.fill_(UNWRITTEN)
        self.padding.fill_(True)
        self.padding[:count, :length] = False if padding is None else padding
        for attention, state in zip(self.attentions, self.states, strict=True):
            for buffer, computed in zip(state[2:], attention.encoder_keys(source), strict=True):
                buffer[:count, :, :length] = computed

    def take_over(self, other: StaticStep, sentences: Tensor) -> None:
        """Go on with some ``sentences`` (B') of another step, which become this one's first.

        This one's capacities must be as large as the other's or larger, but for the number of sentences.
        """
        count, capacity, length = sentences.size(0), other.shape.capacity, other.shape.source_capacity
        self.ancestors.fill_(UNWRITTEN)
        self.ancestors[:count, :, :capacity] = other.ancestors[sentences]
        self.padding.fill_(True)
        self.padding[:count, :length] = other.padding[sentences]
        for state, before in zip(self.states, other.states, strict=True):
            for mine, theirs in zip(state, before, strict=True):
                mine[:count, :, : theirs.size(2)] = theirs[sentences]

    def run(self) -> Tensor:
        """Return the scores (N x 1 x V) after ``tokens`` at the newest position; overwritten by the next step."""
        if self.tokens.device.type != "cuda":
            return self._compute()
        if self._graph is None:
            self._capture()
        assert self._graph is not None
        assert self._scores is not None
        self._graph.replay()
        return self._scores

    def _compute(self) -> Tensor:
        cache = StaticCache(self.states, self.ancestors, self.newest, self.padding, in_place=True)
        self.ancestors.index_copy_(2, self.newest, self._beam[:, None].expand(*self.tokens.shape, 1))
        embedded = self.decoder.embedding.at(self.tokens.flatten(), self.newest)
        output, _, _ = self.decoder.run_layers(embedded, encoder_output=None, cache=cache)
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
        """Return the step of a shape, made if there is none, or if the weights have changed."""
        weights = tuple(
            (weight.data_ptr(), weight.dtype, 0 if weight.is_inference() else weight._version)
            for weight in self.decoder.parameters()
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
        shape = StaticShape(_power(count), beams, _LEAST_CAPACITY, _power(source.size(0), _LEAST_CAPACITY))
        self._step = steps.step(shape, source)
        self._step.begin_search(source, padding)
        #: The place of each sentence that is still searched for, B, and of each of its rows, N.
        self._places = torch.arange(count, device=source.device)
        self._rows = torch.arange(count * beams, device=source.device)
        self._done = 0

    def step(self, tokens: Tensor) -> Tensor:
        """Return the scores (N x 1 x V) after the newest tokens (N), which the next step overwrites.

        Raises:
            ValueError: another search with the same decoder has begun meanwhile.
        """
        if self._steps.search is not self:
            raise ValueError("another search of the same decoder has begun; search without static steps")
        shape = self._step.shape
        if self._done == shape.capacity:
            self._move(sentences=shape.sentences, capacity=2 * shape.capacity)
        self._step.tokens.view(-1).index_copy_(0, self._rows, tokens)
        self._step.newest.fill_(self._done)
        self._done += 1
        scores = self._step.run()
        return scores if self._rows.size(0) == scores.size(0) else scores.index_select(0, self._rows)

    def reorder(self, new_order: Tensor) -> None:
        """Follow the search: row n goes on from the old row ``new_order[n]`` (N').

        Raises:
            ValueError: rows leave their sentence, which no search of fairseq's does.
        """
        shape = self._step.shape
        sentences = torch.div(new_order, shape.beams, rounding_mode="floor").view(-1, shape.beams)
        if not bool((sentences == sentences[:, :1]).all()):
            raise ValueError("a hypothesis goes on from one of another sentence; search without static steps")
        before = self._rows[new_order]
        self._places = self._places[sentences[:, 0]]
        beam = torch.arange(shape.beams, device=new_order.device)
        self._rows = (self._places[:, None] * shape.beams + beam).flatten()
        ancestors = self._step.ancestors.flatten(0, 1)
        ancestors.index_copy_(0, self._rows, ancestors[before])
        if 2 * self._places.size(0) <= shape.sentences and self._done:
            self._move(sentences=_power(self._places.size(0)), capacity=shape.capacity)

    def _move(self, *, sentences: int, capacity: int) -> None:
        """Go on in another shape."""
        before = self._step
        shape = StaticShape(sentences, before.shape.beams, capacity, before.shape.source_capacity)
        self._step = self._steps.step(shape, self._like)
        self._step.take_over(before, self._places)
        self._places = torch.arange(self._places.size(0), device=self._places.device)
        self._rows = torch.arange(self._rows.size(0), device=self._rows.device)


def _power(number: int, least: int = 1) -> int:
    """Return the smallest power of two that is no less than the number."""
    return max(least, 1 << max(number - 1, 0).bit_length())
