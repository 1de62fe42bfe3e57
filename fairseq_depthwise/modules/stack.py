"""What a stack asks of its layers and of what connects them, and how it runs them.

A connection carries a state from the embedding to the stack's output. A layer knows nothing of the connection, except
that both agree on what is passed between them: for the depth-wise model the pair (output, cell), for residual layers
one tensor, T x B x C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

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
        units: sub-layers of a layer, where these are meant by layers.
    """

    first: int = 0
    step: int = 1
    weighs: bool = False
    stays: bool = False
    units: int = 1


@dataclass(frozen=True)
class StackShape:
    """Sizes of the stack that is connected.

    Attributes:
        embed_dim: d.
        layers: L, or with ``units`` the number of sub-layers that are connected, so many in each layer.
        block_size: layers in a block, or sub-layers, for connections that know blocks; 0 without.
        streams: n, for connections with several streams.
        manifold: which doubly stochastic matrices mix these, as in ``--hyper-manifold``; "none" for any matrices.
    """

    embed_dim: int
    layers: int
    block_size: int = 0
    streams: int = 4
    manifold: str = "none"
    units: int = 1


class Connection(nn.Module):
    """The simplest connection: each layer reads the output of the one before; a layer norm ends the stack.

    With residual layers this is the pre-norm Transformer. A state that has more than what runs up the stack (T x B x d)
    has that as its ``stream``.

    Where layers that add nothing would change what the stack computes, a module of it says by what name users know it:
    in ``no_identity``, or in ``identity_on_top`` if new layers above all others change nothing.

    Attributes:
        of_layers: name of a list of modules or parameters -> the layers that its items belong to.
        has_blocks, has_units: whether it reads ``StackShape.block_size``, and knows sub-layers; to it these are layers.
    """

    of_layers: Mapping[str, OfLayers] = {}
    has_blocks = has_units = False

    def __init__(self, shape: StackShape) -> None:
        super().__init__()
        self.units = shape.units
        self.final_norm = nn.LayerNorm(shape.embed_dim)

    def initial_state(self, embedded: Tensor) -> Any:
        """Return the state below the first layer from the embedding (T x B x d)."""
        return embedded

    def layer_input(self, state: Any, index: int) -> Any:
        """Return the input of layer ``index``, counted from 0."""
        return getattr(state, "stream", state)

    def update(self, state: Any, index: int, output: Any) -> Any:
        """Return the state after layer ``index`` computed ``output``."""
        return output

    def representation(self, state: Any) -> Tensor:
        """Return the layer's representation of each position (T x B x d)."""
        hidden: Tensor = getattr(state, "stream", state)
        return hidden

    def output(self, state: Any) -> Tensor:
        """Return the stack's output from the state above the last layer (T x B x d)."""
        output: Tensor = self.final_norm(self.representation(state))
        return output

    def source_weights(self, states: Sequence[Any]) -> dict[str, Tensor]:
        """Return the weight (T x B or a scalar) of each source in what is read of the last of ``states``, by name.

        The states are those below each layer, then that of the stack's output; nothing where all is read alike.
        """
        return {}

    def source_parts(self, states: Sequence[Any]) -> dict[str, Tensor]:
        """Return what each source of :meth:`source_weights` adds to what is read (T x B x d), of which it is the sum.

        For the stack's output this is before the last layer norm.
        """
        return {}

    def without(self, read: Any, part: Tensor) -> Any:
        """Return what is read less one of :meth:`source_parts`; the other weights stay."""
        return read - part


def prepare_layers(
    layers: Iterable[nn.Module], embedded: Tensor, padding: Tensor | None
) -> list[tuple[Tensor | None, ...]]:
    """Return further arguments for the layers of a stack, one tuple for each, before the first of them runs.

    Layers that take some have a class method ``prepare``, which is called with all of them, what the stack reads (T x B
    x d) and the padding (B x T or None). It is the place for what is drawn at random, because activation checkpointing
    runs a layer twice (dropout, which PyTorch repeats, needs no care), and for what is computed for all layers at once.
    """
    alike: list[Any] = [layer for layer in layers if hasattr(layer, "prepare")]
    prepared = dict(zip(alike, alike[0].prepare(alike, embedded, padding), strict=True)) if alike else {}
    return [prepared.get(layer, ()) for layer in layers]


class Stack(nn.Module):
    """What an encoder and a decoder have in common: an embedding, layers, and what connects these."""

    dictionary: Any

    def set_up(
        self, side: str, config: Any, embedding: nn.Module, layers: Iterable[nn.Module], connection: Connection
    ) -> None:
        """Take what the stack consists of, and the options of its side."""
        self.embedding = embedding
        self.layers = nn.ModuleList(layers)
        self.connection = connection
        self.layerdrop: float = getattr(config, f"{side}_layerdrop")
        self.longest: int = getattr(config, f"max_{'source' if side == 'encoder' else 'target'}_positions")
        self.checkpoint_activations: bool = config.checkpoint_activations

    def run(
        self, embedded: Tensor, call: Callable[[Callable[..., Any], int, Any], Any], *, keep_states: bool = True
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the stack's output (T x B x C), and with ``keep_states`` the embedding and what each layer gave.

        ``call`` returns the output of a layer or sub-layer; it is given it, the layer's number and the input. LayerDrop
        (Fan et al. 2020) skips layers in training; ``checkpoint_activations`` keeps inputs only for the backward pass.
        """
        state = self.connection.initial_state(embedded)
        states = [embedded] if keep_states else []
        runs = [True] * len(self.layers)
        if self.layerdrop and self.training:
            runs = (torch.rand(len(self.layers)) > self.layerdrop).tolist()
        recompute = self.checkpoint_activations and self.training
        units = self.connection.units
        for index, layer in enumerate(self.layers):
            for place in range(units):
                number = index * units + place
                output = self.connection.layer_input(state, number)
                if runs[index]:
                    run = layer if units == 1 else partial(layer, only=place)
                    output = call(partial(checkpoint, run, use_reentrant=False) if recompute else run, index, output)
                state = self.connection.update(state, number, output)
            if keep_states:
                states.append(self.connection.representation(state))
        return self.connection.output(state), states

    def max_positions(self) -> int:
        return self.longest
