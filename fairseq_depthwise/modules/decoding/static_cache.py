"""What a decoder keeps between steps in tensors that never change shape or place, for steps that are replayed.

As :mod:`fairseq_depthwise.modules.decoding.cache`, but with room for a number of positions that is used from the first
step on, a mask hiding what is not yet written, and the step's number in a tensor. A CUDA graph that was captured from
such a step does the right thing at every other step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_depthwise.modules.decoding.cache import KeysValues, additive_mask, split_beams


@dataclass(frozen=True)
class StaticShape:
    """The sizes that fix all shapes of a step.

    Attributes:
        sentences: B at most.
        beams: k.
        room: target positions.
        source_room: S at most.
    """

    sentences: int
    beams: int
    room: int
    source_room: int

    @property
    def rows(self) -> int:
        """N = B * k."""
        return self.sentences * self.beams


class StaticCache:
    """Keys and values of every attention of a decoder.

    Args:
        shape: for how much there is room.
        cross_attentions: of the decoder's layers.
        dtype: of keys, values and masks.
        device: where they are.
    """

    products = False

    def __init__(
        self, shape: StaticShape, cross_attentions: Sequence[Any], *, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.shape = shape
        self.beams, self.steps = shape.beams, shape.room
        self.dtype = dtype
        self.device = device
        #: The newest position, counted from 0; a tensor of one number.
        self.newest = torch.zeros(1, dtype=torch.long, device=device)
        #: N x room: which beam of its sentence held row n's hypothesis at each step.
        self.ancestors = torch.zeros(shape.rows, shape.room, dtype=torch.long, device=device)
        self.source_mask: Tensor | None = self._zeros(shape.sentences, 1, 1, shape.source_room)
        self.ancestor_mask: Tensor | None = None
        self._beam = torch.arange(shape.beams, device=device)
        self._own: dict[Any, KeysValues] = {}
        self._encoder: dict[Any, KeysValues] = {
            one: self._zeros_for(one, shape.source_room) for one in cross_attentions
        }
        self._shared: dict[tuple[str, int], Tensor] = {}

    def begin_step(self) -> None:
        """Make the mask of the newest position; a beam sees its ancestors, and itself."""
        sentences, beams, room = self.shape.sentences, self.beams, self.shape.room
        self._shared.clear()
        self.ancestors.index_copy_(1, self.newest, self._beam.repeat(sentences)[:, None])
        hidden = torch.ones(self.shape.rows, room, beams, dtype=torch.bool, device=self.device)
        hidden.scatter_(2, self.ancestors[:, :, None], False)
        hidden |= (torch.arange(room, device=self.device) > self.newest)[None, :, None]
        self.ancestor_mask = additive_mask(hidden.view(sentences, 1, beams, room * beams), self.dtype)

    def group(self, projected: Tensor, heads: int) -> Tensor:
        """1 x N x C to B x heads x k x head_dim: the beams of a sentence become its positions."""
        return split_beams(projected, self.shape.sentences, self.beams, heads).to(self.dtype)

    def shared(self, name: tuple[str, int], compute: Callable[[], Tensor]) -> Tensor:
        """What is the same in all layers, computed by the first that asks in this step."""
        if name not in self._shared:
            self._shared[name] = compute()
        return self._shared[name]

    def append(self, attention: nn.Module, newest: KeysValues) -> KeysValues:
        """Write the newest position of every row (B x heads x k x head_dim); B x heads x (room * k) x head_dim each."""
        if attention not in self._own:
            self._own[attention] = self._zeros_for(attention, self.shape.room * self.beams)
        places = self.newest * self.beams + self._beam
        for stored, new in zip(self._own[attention], newest, strict=True):
            stored.index_copy_(2, places, new)
        return self._own[attention]

    def encoder(self, attention: nn.Module, compute: Callable[[Tensor], KeysValues]) -> KeysValues:
        """Keys and values of the encoder's output, which :meth:`begin_search` has written."""
        return self._encoder[attention]

    # --- between steps -----------------------------------------------------------------------------------------------

    def begin_search(self, source: Tensor, padding: Tensor | None) -> None:
        """Start anew with sentences whose encoder output is ``source`` (S x B x C), True at ``padding`` (B x S)."""
        length, count = source.shape[:2]
        hidden = torch.ones(self.shape.sentences, self.shape.source_room, dtype=torch.bool, device=self.device)
        hidden[:count, :length] = False if padding is None else padding
        assert self.source_mask is not None
        self.source_mask.copy_(additive_mask(hidden, self.dtype)[:, None, None, :])
        for attention, stored in self._encoder.items():
            for room, found in zip(stored, attention.encoder_keys(source), strict=True):
                room[:count, :, :length].copy_(found)

    def take_over(self, other: StaticCache, sentences: Tensor) -> None:
        """Go on with some ``sentences`` (B') of another cache, which become this one's first.

        This cache's rooms must be as large as the other's or larger, but for the number of sentences.
        """
        count, room, length = sentences.size(0), other.shape.room, other.shape.source_room
        rows = (sentences[:, None] * self.beams + self._beam).flatten()
        self.ancestors[: rows.size(0), :room] = other.ancestors[rows]
        assert self.source_mask is not None
        assert other.source_mask is not None
        self.source_mask.fill_(torch.finfo(self.dtype).min / 2)
        self.source_mask[:count, :, :, :length] = other.source_mask[sentences]
        for attention, pair in other._encoder.items():
            for mine, theirs in zip(self._encoder[attention], pair, strict=True):
                mine[:count, :, :length] = theirs[sentences]
        for attention, pair in other._own.items():
            if attention not in self._own:
                self._own[attention] = self._zeros_for(attention, self.shape.room * self.beams)
            for mine, theirs in zip(self._own[attention], pair, strict=True):
                mine[:count, :, : room * self.beams] = theirs[sentences]

    def _zeros_for(self, attention: Any, positions: int) -> KeysValues:
        """Zeros, because what no mask shows is multiplied by 0 and must be finite."""
        shape = (self.shape.sentences, attention.heads, positions, attention.head_dim)
        return KeysValues(self._zeros(*shape), self._zeros(*shape))

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=self.dtype, device=self.device)
