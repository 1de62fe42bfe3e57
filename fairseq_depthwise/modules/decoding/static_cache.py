"""The decoder's cache in tensors of fixed shape, for decoding steps that are compiled or exported.

:class:`~fairseq_depthwise.modules.decoding.cache.DecodingCache` grows with every step and belongs to a search. Here a
cache is made of tensors anew in every step, has a capacity of T target positions, and hides those that no
hypothesis has reached. Nothing depends on values, so that one graph does every step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fairseq_depthwise.modules.attention import KeysValues, additive_mask
from fairseq_depthwise.modules.decoding.cache import StepCache

#: What :attr:`SearchState.ancestors` has at positions that are not written yet.
UNWRITTEN = -1


class LayerState(NamedTuple):
    """The keys and values of one decoder layer.

    Of the self-attention B x heads x T x k x head_dim; zeros where nothing is written yet, since what a mask hides is
    multiplied by 0 and must be finite. Of the cross-attention B x heads x S x head_dim.
    """

    own_keys: Tensor
    own_values: Tensor
    cross_keys: Tensor
    cross_values: Tensor


class StaticCache(StepCache):
    """The cache of one step.

    Layers are identified by their order, first to last, in each the self-attention first: while a graph is traced, a
    module is not always the same object. ``ancestors``, B x k x T, are the beams of its sentence that held a hypothesis
    at each position before the newest, and ``UNWRITTEN`` at the others; ``padding`` is B x S. The newest keys and
    values are written into the states, or without ``in_place`` a part of their own: :attr:`written`.
    """

    def __init__(
        self,
        states: Sequence[LayerState],
        ancestors: Tensor,
        newest: Tensor,
        padding: Tensor,
        *,
        in_place: bool,
    ) -> None:
        super().__init__()
        self.sentences, self.beams, capacity = ancestors.shape
        self.newest = newest
        self.dtype = states[0].own_keys.dtype
        self.use_matmul = ancestors.device.type == "cpu"
        #: Of each layer so far, the newest keys and values, B x heads x k x head_dim each.
        self.written: list[KeysValues] = []
        self._states, self._in_place = states, in_place
        beam = torch.arange(self.beams, device=ancestors.device)
        positions = torch.arange(capacity, device=ancestors.device)
        hidden = ancestors[..., None].ne(beam)  # B x k x T x k
        is_other = beam[:, None].ne(beam)  # of the newest position, a beam sees its own
        self.positions = positions[:, None].expand(capacity, self.beams).reshape(capacity * self.beams)
        # All places of a hypothesis form one dimension. Its size is given explicitly: otherwise a graph computes it in
        # every layer.
        self._places = capacity * self.beams
        shape = self.sentences, self.beams, self._places
        if in_place:
            hidden = torch.where(positions.eq(newest)[:, None], is_other[:, None, :], hidden).reshape(shape)
        else:
            others = is_other.expand(self.sentences, self.beams, self.beams)
            hidden = torch.cat([hidden.reshape(shape), others], dim=2)
            self.positions = torch.cat([self.positions, newest.expand(self.beams)])
        self.ancestor_mask = additive_mask(hidden, self.dtype)[:, None]
        self.source_mask = additive_mask(padding, self.dtype)[:, None, None, :]

    def append(self, attention: nn.Module, newest: KeysValues) -> Sequence[KeysValues]:
        """Return all positions, B x heads x (T k) x head_dim each; if nothing is written in place, and the newest."""
        state = self._states[len(self.written)]
        self.written.append(newest)
        if self._in_place:
            for buffer, new in zip(state[:2], newest, strict=True):
                buffer.index_copy_(2, self.newest, new.unsqueeze(2))
        _, heads, _, _, width = state.own_keys.shape
        shape = self.sentences, heads, self._places, width
        before = KeysValues(state.own_keys.view(shape), state.own_values.view(shape))
        return (before,) if self._in_place else (before, newest)

    def encoder(self, attention: nn.Module, compute: Callable[[Tensor], KeysValues]) -> KeysValues:
        state = self._states[len(self.written) - 1]
        return KeysValues(state.cross_keys, state.cross_values)
