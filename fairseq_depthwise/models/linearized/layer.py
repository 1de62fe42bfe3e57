"""A layer of a trained model, and the linear layer that can stand in for it.

Source: "Transformer with Depth-Wise LSTM" (the first version of "Rewiring the Transformer with Depth-Wise LSTMs"),
Section 4: what a layer's non-linearity is worth is measured by putting ``y = W x + b`` (Eq 12) in place of ``y = F(x)``
(Eq 11), where x is the layer's input and y its output.

What layers pass on is one tensor (T x B x d), or in the depth-wise LSTM model the pair (Out, Cell), about which the
paper says nothing. A pair is either one vector of 2d, or only Out is mapped and Cell is passed on as it is. Where more
goes past a layer than its ``stream`` (value residuals), that is left as it was trained.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_depthwise.models.depthwise_lstm.cell import DepthwiseState

#: What of a pair (Out, Cell) the linear layer reads and gives.
STATES = ("pair", "output")

#: Called with a layer's input and output, T x B x width each, padding and all.
LayerObserver = Callable[[Tensor, Tensor], None]


def mapped_part(state: Any, which: str = "pair") -> Tensor:
    """Return what the linear layer reads of a layer's state: T x B x d, or T x B x 2d for a pair as a whole."""
    if not isinstance(state, DepthwiseState):
        tensor: Tensor = getattr(state, "stream", state)
        return tensor
    return torch.cat(state, dim=-1) if which == "pair" else state.output


def with_mapped_part(state: Any, mapped: Tensor, which: str = "pair") -> Any:
    """Return ``state`` from below with ``mapped`` in place of what :func:`mapped_part` took."""
    if not isinstance(state, DepthwiseState):
        return state._replace(stream=mapped) if hasattr(state, "stream") else mapped
    if which == "pair":
        return DepthwiseState(*mapped.chunk(2, dim=-1))
    return DepthwiseState(output=mapped, cell=state.cell)


class LinearizedLayer(nn.Module):
    """Stands where ``intact`` stood and is called as it was: with the state below, then whatever else it takes.

    ``width`` is d, or 2d for pairs; ``which``: of ``STATES``, for pairs. Beside its state it returns None for each
    other value that the layer returned, ``returned_besides`` of them.
    """

    #: Read by fairseq's encoder, of its first layer: do not take the fused path, which knows no other layers.
    load_to_BT = False  # noqa: N815  # fairseq's name

    def __init__(self, intact: nn.Module, *, width: int, which: str = "pair", returned_besides: int = 0) -> None:
        super().__init__()
        self.intact = intact
        # The identity: what a residual layer is near to.
        self.linear = nn.Linear(width, width)
        nn.init.eye_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        self.which = which
        self.returned_besides = returned_besides
        #: Whether the linear layer is used, or the layer as it was trained.
        self.replaced = True
        #: While it is there, the layer computes as it was trained, and shows it what it does.
        self.observer: LayerObserver | None = None

    def forward(self, state: Any, *args: Any, **kwargs: Any) -> Any:
        """Compute what the layer returns from the state below."""
        if self.observer is None and self.replaced:
            carried = getattr(self.intact, "carried", None)
            past = state if carried is None else carried(state)
            output = with_mapped_part(past, self.linear(mapped_part(state, self.which)), self.which)
            return (output, *[None] * self.returned_besides) if self.returned_besides else output
        returned = self.intact(state, *args, **kwargs)
        if self.observer is not None:
            above = returned[0] if self.returned_besides else returned
            self.observer(mapped_part(state, self.which), mapped_part(above, self.which))
        return returned

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """Let the layer rename what an old checkpoint has, as fairseq's encoder asks."""
        upgrade = getattr(self.intact, "upgrade_state_dict_named", None)
        if upgrade is not None:
            upgrade(state_dict, f"{name}.intact")
