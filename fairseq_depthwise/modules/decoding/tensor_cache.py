"""What a decoder keeps between its steps as plain tensors, for a step that is a function of tensors.

The cache of a search (:mod:`fairseq_depthwise.modules.decoding.cache`) is an object that remembers; a traced step has
only arguments and results. Here a cache is made of the arguments, and gives back what has become of them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fairseq_depthwise.modules.decoding.cache import KeysValues, additive_mask, split_beams


class TensorCache:
    """The keys and values that one step reads, and those that it adds. Every row is a sentence of its own (k = 1).

    Own keys and values begin with an empty slot that no position sees, so that no tensor is ever empty: programs that
    are traced for any size take a size of 0 badly.

    Layers are told apart by their order, first to last, in each the self-attention first: while a program is traced,
    a module is not always the same object.

    Args:
        own: of the self-attentions, keys and values of the empty slot and of earlier positions, L x N x heads x t x
            head_dim each.
        encoder: of the cross-attentions, L x N x heads x S x head_dim each.
        padding: N x S, True at the source's padding.
    """

    beams = 1
    products = False

    def __init__(self, own: KeysValues, encoder: KeysValues, padding: Tensor) -> None:
        self.source_mask: Tensor | None = additive_mask(padding, own.keys.dtype)[:, None, None, :]
        #: Slots, the newest position's and the empty one included.
        self.steps = own.keys.size(3) + 1
        empty = torch.arange(self.steps, device=padding.device) == 0
        self.ancestor_mask: Tensor | None = additive_mask(empty, own.keys.dtype)[None, None, None, :]
        self._before, self._encoder = own, encoder
        self._now: list[KeysValues] = []

    @property
    def newest(self) -> Tensor:
        """The newest position's slot."""
        return torch.arange(self.steps)[-1:]

    def group(self, projected: Tensor, heads: int) -> Tensor:
        """1 x N x C to N x heads x 1 x head_dim."""
        return split_beams(projected, projected.size(1), 1, heads)

    def shared(self, name: tuple[str, int], compute: Callable[[], Tensor]) -> Tensor:
        """What is the same in all layers; a program computes it in each."""
        return compute()

    def append(self, attention: nn.Module, newest: KeysValues) -> KeysValues:
        """Add each row's newest position (N x heads x 1 x head_dim); all then, N x heads x (t + 1) x head_dim each."""
        layer = len(self._now)
        pairs = zip(self._before, newest, strict=True)
        self._now.append(KeysValues(*(torch.cat([old[layer], new], dim=2) for old, new in pairs)))
        return self._now[-1]

    def encoder(self, attention: nn.Module, compute: Callable[[Tensor], KeysValues]) -> KeysValues:
        """Keys and values of the encoder's output; they are arguments of the step."""
        layer = len(self._now) - 1
        return KeysValues(self._encoder.keys[layer], self._encoder.values[layer])

    def own(self) -> KeysValues:
        """After the step: of the self-attentions, L x N x heads x (t + 1) x head_dim each."""
        return KeysValues(*(torch.stack(parts) for parts in zip(*self._now, strict=True)))
