"""A layer of a trained model, and the linear layer that can replace it.

Source: "Transformer with Depth-Wise LSTM" (the first version of "Rewiring the Transformer with Depth-Wise LSTMs"),
Section 4. It measures the effect of a layer's non-linearity by replacing ``y = F(x)`` (Eq 11) by ``y = W x + b`` (Eq
12), where x is the layer's input and y its output.

Layers pass on one tensor (T x B x d), or in the depth-wise LSTM model the pair (Out, Cell), which the paper does not
mention. Either the pair is one vector of width 2d, or only Out is mapped and Cell is passed on unchanged. What goes
past a layer besides its ``stream`` (value residuals) is left as it was trained.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_depthwise.models.depthwise_lstm.cell import DepthwiseState
from fairseq_depthwise.modules.stack import stream_of, with_stream

#: What the linear layer maps of a pair (Out, Cell).
STATES = ("pair", "output")

#: Called with a layer's input and output, T x B x width each, padding included.
LayerObserver = Callable[[Tensor, Tensor], None]


def get_mapped_part(state: Any, which: str = "pair") -> Tensor:
    """Return what the linear layer reads of a layer's state: T x B x d, or T x B x 2d for a pair as a whole."""
    if not isinstance(state, DepthwiseState):
        stream: Tensor = stream_of(state)
        return stream
    return torch.cat(state, dim=-1) if which == "pair" else state.output


def replace_mapped_part(state: Any, mapped: Tensor, which: str = "pair") -> Any:
    """Return the state from below with ``mapped`` in place of what :func:`get_mapped_part` returned."""
    if not isinstance(state, DepthwiseState):
        return with_stream(state, mapped)
    if which == "pair":
        return DepthwiseState(*mapped.chunk(2, dim=-1))
    return DepthwiseState(output=mapped, cell=state.cell)


class LinearizedLayer(nn.Module):
    """Replaces a layer and takes the same arguments: the state below, then whatever else the layer takes.

    Args:
        intact: the trained layer.
        width: d, or 2d for pairs.
        which: one of ``STATES``, for pairs.
        returned_besides: how many values the layer returns besides its state; the linear layer returns None for each.
    """

    #: fairseq's encoder reads this of its first layer: False keeps it from its fused path, which calls no layers.
    load_to_BT = False  # noqa: N815  # fairseq's name

    def __init__(self, intact: nn.Module, *, width: int, which: str = "pair", returned_besides: int = 0) -> None:
        super().__init__()
        self.intact = intact
        # A residual layer is close to the identity.
        self.linear = nn.Linear(width, width)
        nn.init.eye_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        self.which = which
        self.returned_besides = returned_besides
        #: True: compute with the linear layer; False: with the trained layer.
        self.replaced = True
        #: If set, the trained layer computes, and the observer is called with its input and output.
        self.observer: LayerObserver | None = None

    def forward(self, state: Any, *args: Any, **kwargs: Any) -> Any:
        """Compute what the layer returns from the state below."""
        if self.observer is None and self.replaced:
            return self._linear(state)

        # The trained layer, which an observer watches.
        returned = self.intact(state, *args, **kwargs)
        if self.observer is not None:
            above = returned[0] if self.returned_besides else returned
            self.observer(get_mapped_part(state, self.which), get_mapped_part(above, self.which))
        return returned

    def _linear(self, state: Any) -> Any:
        # Layers of value residuals have more to pass on than the stream.
        pass_values = getattr(self.intact, "with_first_values", None)
        past = state if pass_values is None else pass_values(state)
        mapped = self.linear(get_mapped_part(state, self.which))
        output = replace_mapped_part(past, mapped, self.which)
        if not self.returned_besides:
            return output
        return (output, *[None] * self.returned_besides)

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """Let the layer rename parameters of an old checkpoint; fairseq's encoder calls this."""
        upgrade = getattr(self.intact, "upgrade_state_dict_named", None)
        if upgrade is not None:
            upgrade(state_dict, f"{name}.intact")
