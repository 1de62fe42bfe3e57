"""A stack of layers, the connections between them, and the interfaces of both.

A connection carries a state from the embedding to the stack's output. A layer knows nothing of the connection, except
that both agree on what is passed between them: for the depth-wise model the pair (output, cell), for residual layers
one tensor, T x B x C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fairseq_depthwise.options import SIDES as SIDES


class OfLayers(NamedTuple):
    """Which layers the items of a list of modules or parameters belong to; they move with these when the stack grows.

    Attributes:
        first: the layer that item 0 belongs to; the number of layers stands for what reads the stack's output.
        step: layers from one item to the next.
        weighs: whether an item is a vector of weights, of the embedding, then of each ``step`` layers.
        stays: whether items stay at their place unless new layers are to change nothing.
        sublayers: sub-layers in each layer, where sub-layers are connected one by one and count as layers here.
    """

    first: int = 0
    step: int = 1
    weighs: bool = False
    stays: bool = False
    sublayers: int = 1


@dataclass(frozen=True)
class StackShape:
    """Sizes of the stack that is connected.

    Attributes:
        embed_dim: d.
        layers: L; where sub-layers are connected, the number of these.
        block_size: layers, or sub-layers, in a block, for connections that have blocks; 0 without.
        streams: n, for connections with several streams.
        manifold: which doubly stochastic matrices mix these, as in ``--hyper-manifold``; "none" for any matrices.
        sublayers: sub-layers in each layer that are connected one by one; 1 where whole layers are connected.
    """

    embed_dim: int
    layers: int
    block_size: int = 0
    streams: int = 4
    manifold: str = "none"
    sublayers: int = 1


def stream_of(state: Any) -> Any:
    """Return the part of a state that runs up the stack: its ``stream``, or the state itself."""
    return getattr(state, "stream", state)


def with_stream(state: Any, stream: Tensor) -> Any:
    """Return a state with another ``stream``; it takes the place of a state that is a single tensor."""
    return state._replace(stream=stream) if hasattr(state, "stream") else stream


class Connection(nn.Module):
    """The simplest connection: each layer reads the output of the layer below; a layer norm ends the stack.

    With residual layers this is the pre-norm Transformer. Others override the methods, and declare in their class what
    the rest of the program needs to know of them. A state that consists of more than what runs up the stack (T x B x d)
    is a named tuple with that as its ``stream``.

    Growth with zero-initialized layers is refused where it would change what the stack computes. A module that causes
    this has an attribute with the name that the error gives: ``no_identity_reason``, or
    ``identity_only_on_top_option`` if new layers above all others change nothing.

    Attributes:
        of_layers: name of a list of modules or parameters -> the layers that its items belong to, for growth.
        has_blocks: whether it reads ``StackShape.block_size``.
        has_sublayers: whether it can connect sub-layers one by one.
        encoder_layer, decoder_layer: the classes of layers that it needs; None where any will do.
    """

    of_layers: Mapping[str, OfLayers] = {}
    has_blocks: bool = False
    has_sublayers: bool = False
    encoder_layer: type[nn.Module] | None = None
    decoder_layer: type[nn.Module] | None = None

    def __init__(self, shape: StackShape) -> None:
        super().__init__()
        self.sublayers = shape.sublayers
        self.final_norm = nn.LayerNorm(shape.embed_dim)

    def initial_state(self, embedded: Tensor) -> Any:
        """Return the state below the first layer from the embedding (T x B x d)."""
        return embedded

    def layer_input(self, state: Any, index: int) -> Any:
        """Return the input of layer ``index``, counted from 0."""
        return stream_of(state)

    def update(self, state: Any, index: int, output: Any) -> Any:
        """Return the state after layer ``index`` computed ``output``."""
        return output

    def representation(self, state: Any) -> Tensor:
        """Return the layer's representation of each position (T x B x d)."""
        hidden: Tensor = stream_of(state)
        return hidden

    def final_norm_input(self, state: Any) -> Tensor:
        """Return what the last layer norm reads of the state above the last layer (T x B x d)."""
        return self.representation(state)

    def output(self, state: Any) -> Tensor:
        """Return the stack's output from the state above the last layer (T x B x d)."""
        output: Tensor = self.final_norm(self.final_norm_input(state))
        return output


def prepare_layers(
    layers: Iterable[nn.Module], embedded: Tensor, padding: Tensor | None
) -> list[tuple[Tensor | None, ...]]:
    """Return further arguments for each layer of a stack, computed before the first of them runs.

    Layers with further arguments have a class method ``prepare``. It is called with all of these layers, the stack's
    input (T x B x d) and the padding (B x T or None). It is the place for random numbers, because activation
    checkpointing runs a layer twice and PyTorch repeats dropout only, and for what is computed for all layers at once.
    """
    prepared_layers: list[Any] = [layer for layer in layers if hasattr(layer, "prepare")]
    if not prepared_layers:
        return [() for _ in layers]
    # Layers without such arguments may lie between them, for example linearized ones.
    arguments = prepared_layers[0].prepare(prepared_layers, embedded, padding)
    arguments_of = dict(zip(prepared_layers, arguments, strict=True))
    return [arguments_of.get(layer, ()) for layer in layers]


class Stack(nn.Module):
    """What an encoder and a decoder have in common: an embedding, layers, and what connects these."""

    dictionary: Any

    def set_up(
        self, side: str, config: Any, embedding: nn.Module, layers: Iterable[nn.Module], connection: Connection
    ) -> None:
        """Set the parts of the stack, and the options of its side."""
        self.embedding = embedding
        self.layers = nn.ModuleList(layers)
        self.connection = connection
        self.layerdrop: float = getattr(config, f"{side}_layerdrop")
        self.longest: int = config.max_source_positions if side == "encoder" else config.max_target_positions
        self.checkpoint_activations: bool = config.checkpoint_activations

    def run(
        self, embedded: Tensor, call: Callable[[Callable[..., Any], int, Any], Any], *, keep_states: bool = True
    ) -> tuple[Tensor, list[Tensor]]:
        """Run all layers from the embedding (T x B x C) up.

        LayerDrop (Fan et al. 2020) skips layers in training. ``checkpoint_activations`` keeps only the inputs of layers
        for the backward pass.

        Args:
            call: ``call(layer or sub-layer, index of the layer, its input)`` returns the output.
            keep_states: also return the embedding and the output of each layer.

        Returns:
            the stack's output, T x B x C, and with ``keep_states`` L + 1 times T x B x C.
        """
        # LayerDrop decides for all layers at once.
        is_run = [True] * len(self.layers)
        if self.layerdrop and self.training:
            is_run = (torch.rand(len(self.layers)) > self.layerdrop).tolist()
        recompute = self.checkpoint_activations and self.training
        sublayers = self.connection.sublayers

        state = self.connection.initial_state(embedded)
        states = [embedded] if keep_states else []
        for index, layer in enumerate(self.layers):
            for sublayer in range(sublayers):
                # The connection counts sub-layers as layers.
                number = index * sublayers + sublayer
                # The output of a skipped layer is its input.
                output = self.connection.layer_input(state, number)
                if is_run[index]:
                    run = layer if sublayers == 1 else partial(layer, sublayer=sublayer)
                    if recompute:
                        run = partial(checkpoint, run, use_reentrant=False)
                    output = call(run, index, output)
                state = self.connection.update(state, number, output)
            if keep_states:
                states.append(self.connection.representation(state))
        return self.connection.output(state), states

    def max_positions(self) -> int:
        return self.longest
