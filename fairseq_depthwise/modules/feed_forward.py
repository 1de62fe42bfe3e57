"""The position-wise feed-forward net of the Transformer."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from fairseq_depthwise.modules.activations import ACTIVATIONS
from fairseq_depthwise.modules.dropout import Dropout
from fairseq_depthwise.modules.linear.prepacked import prepack


class FeedForward(nn.Module):
    """``W_2 activation(W_1 x + b_1) + b_2`` (Vaswani et al. 2017, Equation 2), with a name in ``ACTIVATIONS``.

    Xavier-uniform initialization, biases 0, as in fairseq of 2018; today's fairseq uses the initialization of
    :class:`torch.nn.Linear`.
    """

    def __init__(
        self, *, embed_dim: int, hidden_dim: int, activation: str = "relu", activation_dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.first = nn.Linear(embed_dim, hidden_dim)
        self.second = nn.Linear(ACTIVATIONS[activation].width(hidden_dim), embed_dim)
        self.activation = activation
        self.activation_dropout = Dropout(activation_dropout)
        for linear in (self.first, self.second):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, values: Tensor) -> Tensor:
        """Compute T x B x d from T x B x d."""
        activated = ACTIVATIONS[self.activation].function(self.first(values))
        output: Tensor = self.second(self.activation_dropout(activated))
        return output

    def make_generation_fast_(self, **_: Any) -> None:
        """Pack the weights once, before generation (fairseq's hook)."""
        prepack(self, "first", "second")
