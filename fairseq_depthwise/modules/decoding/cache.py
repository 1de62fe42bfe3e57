"""What a decoder keeps between the steps of a beam search.

A search has B sentences with k hypotheses (beams) each: N = B * k rows, and row ``b * k + j`` is beam j of sentence b.
The beams of a sentence are treated as k queries over one set of keys:

- Encoder keys and values are computed and stored once per sentence, not per beam.
- The keys and values of earlier target positions are written once and never moved. Of each step all k keys stay, and
  a mask shows a beam those of its own ancestors: when the search exchanges beams, only the numbers of the ancestors
  are reordered. (fairseq's own decoder copies every key and value of every layer at every step.)

On a CPU all of it is kept in float32, of models in 16 bits too: PyTorch's products for a few queries take longer there
in 16 bits, though they read half as much.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

#: Target positions that are allocated at first; the buffer doubles when it is full.
_FIRST_STEPS = 32


class KeysValues(NamedTuple):
    """Keys and values with heads split, B x heads x positions x head_dim each."""

    keys: Tensor
    values: Tensor


class StepCache(Protocol):
    """What an attention asks for in a step; :class:`DecodingCache` says what each of these is."""

    beams: int
    products: bool
    source_mask: Tensor | None
    ancestor_mask: Tensor | None

    @property
    def newest(self) -> Tensor: ...

    @property
    def positions(self) -> Tensor: ...

    def group(self, projected: Tensor, heads: int) -> Tensor: ...

    def shared(self, name: tuple[str, int], compute: Callable[[], Tensor]) -> Tensor: ...

    def append(self, attention: nn.Module, newest: KeysValues) -> Sequence[KeysValues]: ...

    def encoder(self, attention: nn.Module, compute: Callable[[Tensor], KeysValues]) -> KeysValues: ...


class DecodingCache:
    """Keys and values of every attention of a decoder, for one beam search.

    Args:
        source: S x B x C, the encoder's output, once per sentence.
        padding: B x S, True at padding of ``source``; None where there is none.
        rows: N, the sentence that each row of the search belongs to.
    """

    def __init__(self, source: Tensor, padding: Tensor | None, rows: Tensor) -> None:
        beams = sentence_beams(source.size(1), rows)
        if beams is None:
            # Not k neighboring rows for each sentence: every row becomes a sentence of its own.
            source, beams = source.index_select(1, rows), 1
            padding = None if padding is None else padding.index_select(0, rows)
        self.beams = beams
        self.source = source
        #: Of keys, values and masks.
        self.dtype = torch.promote_types(source.dtype, torch.float32) if source.device.type == "cpu" else source.dtype
        self.source_mask = None if padding is None else additive_mask(padding, self.dtype)[:, None, None, :]
        #: The number of target positions so far, the newest included.
        self.steps = 0
        #: N x steps: which beam of its sentence held row n's hypothesis at each step.
        self.ancestors = torch.empty(rows.size(0), 0, dtype=torch.long, device=source.device)
        #: Additive, B x 1 x k x (steps * k): shows each beam its ancestors; None where everything may be seen.
        self.ancestor_mask: Tensor | None = None
        self._own: dict[nn.Module, KeysValues] = {}
        self._encoder: dict[nn.Module, KeysValues] = {}
        self._shared: dict[tuple[str, int], Tensor] = {}

    @property
    def sentences(self) -> int:
        """B."""
        return self.source.size(1)

    @property
    def products(self) -> bool:
        """Whether attention is faster in plain products.

        PyTorch's fused kernel for a CPU works on blocks of 32 queries and more, and the beams of a sentence are fewer:
        for several sentences products take a third to two thirds of its time.
        """
        return self.source.device.type == "cpu" and self.sentences > 1

    @property
    def newest(self) -> Tensor:
        """The newest position, counted from 0; a tensor of one number."""
        return torch.arange(self.steps - 1, self.steps, device=self.source.device)

    @property
    def positions(self) -> Tensor:
        """The position of each key of :meth:`append`."""
        return torch.arange(self.steps, device=self.source.device).repeat_interleave(self.beams)

    def begin_step(self) -> None:
        """Extend the buffers by the next target position of every row."""
        beam = torch.arange(self.beams, device=self.ancestors.device).repeat(self.sentences)
        self.ancestors = torch.cat([self.ancestors, beam[:, None]], dim=1)
        self.steps += 1
        self._shared.clear()
        if self.beams > 1:
            hidden = torch.ones(*self.ancestors.shape, self.beams, dtype=torch.bool, device=self.ancestors.device)
            hidden.scatter_(2, self.ancestors[:, :, None], False)
            hidden = hidden.view(self.sentences, 1, self.beams, self.steps * self.beams)
            self.ancestor_mask = additive_mask(hidden, self.dtype)

    def group(self, projected: Tensor, heads: int) -> Tensor:
        """Reshape 1 x N x C to B x heads x k x head_dim: the beams of a sentence become its positions."""
        return split_beams(projected, self.sentences, self.beams, heads).to(self.dtype)

    def shared(self, name: tuple[str, int], compute: Callable[[], Tensor]) -> Tensor:
        """Return what is the same in all layers, computed by the first that asks in this step."""
        if name not in self._shared:
            self._shared[name] = compute()
        return self._shared[name]

    def append(self, attention: nn.Module, newest: KeysValues) -> Sequence[KeysValues]:
        """Add the newest position of every row and return all, in the order step by step, in each beam by beam.

        Args:
            attention: whose keys and values.
            newest: B x heads x k x head_dim each, from :meth:`group`.

        Returns:
            B x heads x (steps * k) x head_dim each, in one part.
        """
        start, end = (self.steps - 1) * self.beams, self.steps * self.beams
        stored = self._own.get(attention)
        if stored is None or stored.keys.size(2) < end:
            stored = self._own[attention] = KeysValues(*(self._buffer(stored, index, newest.keys) for index in (0, 1)))
        for buffer, new in zip(stored, newest, strict=True):
            buffer.narrow(2, start, self.beams).copy_(new)
        return (KeysValues(stored.keys.narrow(2, 0, end), stored.values.narrow(2, 0, end)),)

    def _buffer(self, stored: KeysValues | None, index: int, like: Tensor) -> Tensor:
        steps = _FIRST_STEPS if stored is None else 2 * stored[index].size(2) // self.beams
        buffer = like.new_empty(self.sentences, like.size(1), steps * self.beams, like.size(3))
        if stored is not None:
            buffer[:, :, : stored[index].size(2)] = stored[index]
        return buffer

    def encoder(self, attention: nn.Module, compute: Callable[[Tensor], KeysValues]) -> KeysValues:
        """Return keys and values of the encoder's output, computed from it (S x B x C) at the first step."""
        if attention not in self._encoder:
            self._encoder[attention] = KeysValues(*(tensor.to(self.dtype) for tensor in compute(self.source)))
        return self._encoder[attention]

    def reorder(self, new_order: Tensor) -> None:
        """Follow the search: row n goes on from the old row ``new_order[n]`` (N', on the cache's device)."""
        count = self.ancestors.size(0)
        sentence_of = torch.div(new_order, self.beams, rounding_mode="floor")
        self.ancestors = self.ancestors.index_select(0, new_order)
        in_order = torch.arange(count, device=new_order.device) // self.beams
        if new_order.size(0) == count and torch.equal(sentence_of, in_order):
            return
        by_sentence = sentence_of.view(-1, self.beams) if new_order.size(0) % self.beams == 0 else None
        if by_sentence is not None and bool((by_sentence == by_sentence[:, :1]).all()):
            self._select(by_sentence[:, 0])
        else:
            self._separate(sentence_of)

    def _select(self, sentences: Tensor) -> None:
        """Keep these sentences: some are finished."""
        self.source = self.source.index_select(1, sentences)
        if self.source_mask is not None:
            self.source_mask = self.source_mask.index_select(0, sentences)
        for stored in (self._own, self._encoder):
            for attention, pair in stored.items():
                stored[attention] = KeysValues(*(tensor.index_select(0, sentences) for tensor in pair))

    def _separate(self, sentence_of: Tensor) -> None:
        """Make each row, which left its sentence and continues one of ``sentence_of``, a sentence of its own."""
        steps, beams = self.steps, self.beams
        position = torch.arange(steps, device=sentence_of.device) * beams + self.ancestors  # N x steps
        self._select(sentence_of)
        for attention, pair in self._own.items():
            index = position[:, None, :, None].expand(-1, pair.keys.size(1), -1, pair.keys.size(3))
            self._own[attention] = KeysValues(*(tensor.gather(2, index) for tensor in pair))
        self.beams = 1
        self.ancestors = torch.zeros_like(self.ancestors)
        self.ancestor_mask = None


def sentence_beams(sentences: int, rows: Tensor) -> int | None:
    """Return k if ``rows`` (N, the sentence that each belongs to) are k neighbors for each sentence, else None."""
    beams = rows.size(0) // max(sentences, 1)
    in_order = torch.arange(sentences, device=rows.device).repeat_interleave(beams)
    return beams if in_order.size(0) == rows.size(0) and torch.equal(rows, in_order) else None


def split_beams(projected: Tensor, sentences: int, beams: int, heads: int) -> Tensor:
    """Reshape 1 x N x C to B x heads x k x head_dim."""
    return projected.view(sentences, beams, heads, projected.size(2) // heads).transpose(1, 2)


def additive_mask(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """Return 0 where ``hidden`` is False, half the lowest finite number where it is True.

    Added to scores, because boolean masks are slow in several of PyTorch's kernels. A finite number, because a row of
    -inf only, which a sentence padded on the left has, would become NaN; half of it, so that a negative score can be
    added in 16 bits.
    """
    lowest = torch.finfo(dtype).min / 2
    return torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, lowest)
