"""What a stack asks of its layers and of what connects them, and how it runs them.

A connection carries a state from the embedding to the stack's output. A layer knows nothing of the connection, except
that both agree on what is passed between them: for the depth-wise model the pair (output, cell), for residual layers
one tensor, T x B x C.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

#: The stacks of a model.
SIDES = ("encoder", "decoder")


class OfLayers(NamedTuple):
    """Which layers the items of a list of modules or parameters belong to; with them they move when the stack grows.

    Attributes:
        first: the layer that item 0 belongs to; the number of layers stands for what reads the stack's output.
        step: layers from one item to the next.
        weighs: whether an item is a vector of weights, of the embedding, then of each ``step`` layers.
        stays: whether items stay at their place unless new layers are to change nothing.
    """

    first: int = 0
    step: int = 1
    weighs: bool = False
    stays: bool = False


class Connection(nn.Module):
    """The simplest connection: each layer reads the output of the one before; a layer norm ends the stack.

    With residual layers this is the pre-norm Transformer.

    Where layers that add nothing would change what the stack computes, a module of it says by what name users know it:
    in ``no_identity``, or in ``identity_on_top`` if new layers above all others change nothing.

    Attributes:
        of_layers: name of a list of modules or parameters -> the layers that its items belong to.
    """

    of_layers: Mapping[str, OfLayers] = {}

    def __init__(self, *, embed_dim: int) -> None:
        super().__init__()
        self.final_norm = nn.LayerNorm(embed_dim)

    def initial_state(self, embedded: Tensor) -> Any:
        """Return the state below the first layer from the embedding (T x B x d)."""
        return embedded

    def layer_input(self, state: Any, index: int) -> Any:
        """Return the input of layer ``index``, counted from 0."""
        return state

    def update(self, state: Any, index: int, output: Any) -> Any:
        """Return the state after layer ``index`` computed ``output``."""
        return output

    def representation(self, state: Any) -> Tensor:
        """Return the layer's representation of each position (T x B x d)."""
        hidden: Tensor = state
        return hidden

    def output(self, state: Any) -> Tensor:
        """Return the stack's output from the state above the last layer (T x B x d)."""
        output: Tensor = self.final_norm(self.representation(state))
        return output


class EncoderLayer(nn.Module):
    """A layer that is called with what the connection gives it, the padding, and what was prepared for it."""

    @classmethod
    def prepare(
        cls, layers: Sequence[Any], embedded: Tensor, padding: Tensor | None
    ) -> list[tuple[Tensor | None, ...]]:
        """Return further arguments for the layers of a stack, one tuple for each, before the first of them runs.

        This is the place for what is drawn at random, because activation checkpointing runs a layer twice (dropout,
        which PyTorch repeats, needs no care), and for what is computed for all layers at once. ``layers`` are all of
        this class, ``embedded`` (T x B x d) is what the stack reads, ``padding`` is B x T or None.
        """
        return [()] * len(layers)


def prepare_layers(
    layers: Iterable[nn.Module], embedded: Tensor, padding: Tensor | None
) -> list[tuple[Tensor | None, ...]]:
    """Call :meth:`EncoderLayer.prepare` for the layers of each class; other layers get no further arguments."""
    kinds: dict[type[nn.Module], list[nn.Module]] = {}
    for layer in layers:
        kinds.setdefault(type(layer), []).append(layer)
    prepared: dict[nn.Module, tuple[Tensor | None, ...]] = {}
    for kind, alike in kinds.items():
        if issubclass(kind, EncoderLayer):
            prepared.update(zip(alike, kind.prepare(alike, embedded, padding), strict=True))
    return [prepared.get(layer, ()) for layer in layers]


class Stack(Protocol):
    """An encoder or a decoder."""

    layers: nn.ModuleList
    layerdrop: float
    training: bool


def layers_to_run(stack: Stack) -> Iterator[tuple[int, nn.Module, bool]]:
    """Return number, layer and whether it runs; in training, LayerDrop (Fan et al. 2020) skips some."""
    runs = [True] * len(stack.layers)
    if stack.layerdrop and stack.training:
        runs = (torch.rand(len(stack.layers)) > stack.layerdrop).tolist()
    return zip(range(len(stack.layers)), stack.layers, runs, strict=True)


def run_layer(layer: nn.Module, *args: Any, recompute: bool, **kwargs: Any) -> Any:
    """Call a layer; with ``recompute`` keep only its input and recompute its activations in the backward pass."""
    if recompute:
        return checkpoint(layer, *args, use_reentrant=False, **kwargs)
    return layer(*args, **kwargs)
