"""What the encoder layers of all families have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor, nn


class EncoderLayer(nn.Module):
    """A layer that is called with what the connection gives it, the padding, and what was prepared for it."""

    @classmethod
    def prepare(
        cls, layers: Sequence[Any], embedded: Tensor, padding: Tensor | None
    ) -> list[tuple[Tensor | None, ...]]:
        """Further arguments for the layers of a stack, one tuple for each, before the first of them runs.

        This is the place for what is drawn at random, because activation checkpointing runs a layer twice (dropout,
        which PyTorch repeats, needs no care), and for what is computed for all layers at once.

        Args:
            layers: all of this class.
            embedded: what the stack reads, T x B x d.
            padding: B x T, True at padding; None where there is none.
        """
        return [()] * len(layers)


def prepare_layers(
    layers: Iterable[nn.Module], embedded: Tensor, padding: Tensor | None
) -> list[tuple[Tensor | None, ...]]:
    """:meth:`EncoderLayer.prepare` of the layers of each class; none for a class that has no such method."""
    kinds: dict[type[nn.Module], list[nn.Module]] = {}
    for layer in layers:
        kinds.setdefault(type(layer), []).append(layer)
    prepared: dict[nn.Module, tuple[Tensor | None, ...]] = {}
    for kind, alike in kinds.items():
        if issubclass(kind, EncoderLayer):
            prepared.update(zip(alike, kind.prepare(alike, embedded, padding), strict=True))
    return [prepared.get(layer, ()) for layer in layers]
