"""The encoder layer of the Multi-Unit Transformer: parallel units of attention and feed-forward, summed.

Source: "Multi-Unit Transformers for Neural Machine Translation", Section 3, and the authors' program where the text
leaves layer norms and residual connections open.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fairseq_depthwise.models.mute.attention import UnitAttention
from fairseq_depthwise.models.mute.noise import UnitInputs
from fairseq_depthwise.models.mute.order import UnitOrder, coefficients
from fairseq_depthwise.modules.activations import ACTIVATIONS
from fairseq_depthwise.modules.dropout import Dropout
from fairseq_depthwise.modules.linear.batched import UnitLayerNorm, UnitLinear
from fairseq_depthwise.modules.weighted_sum import weighted_sum


class UnitFeedForward(nn.Module):
    """``W_2 activation(W_1 LN(x))`` of each unit, with biases: FFN_i of Equation 9 and the norm before it.

    ``units`` is the number of nets: 1 where all units share one. ``activation`` is a name in ``ACTIVATIONS``.
    """

    def __init__(
        self, *, units: int, embed_dim: int, hidden_dim: int, activation: str = "relu", activation_dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.norm = UnitLayerNorm(units=units, embed_dim=embed_dim)
        self.first = UnitLinear(units=units, in_features=embed_dim, out_features=hidden_dim)
        inner_dim = ACTIVATIONS[activation].width(hidden_dim)
        self.second = UnitLinear(units=units, in_features=inner_dim, out_features=embed_dim)
        self.activation = activation
        self.activation_dropout = Dropout(activation_dropout)

    def forward(self, values: Tensor) -> Tensor:
        """Compute U x T x B x d from U x T x B x d."""
        activated = ACTIVATIONS[self.activation].function(self.first(self.norm(values)))
        output: Tensor = self.second(self.activation_dropout(activated))
        return output


class MultiUnitEncoderLayer(nn.Module):
    """A layer of I parallel units, computed together (Equations 8 to 18)::

        n   = LN(x)                            one norm for all units
        n_i = Bias_i(n)                        noise in training; the residual stays clean
        s_i = x + SelfAttn_i(n_i)
        F_i = s_i + FFN_i(LN_i(s_i))
        out = sum_i c_i F_i                    c = alpha, or with an order M a (see ``order.py``)

    :meth:`prepare` draws the noise and computes c, for all layers of a stack at once.
    """

    #: The linear layers that end the units' branches, and the weights of their sum. With the linear layers 0 and the
    #: weights as in a new layer, the layer passes on what it reads; with an order, nearly so.
    branch_ends = ("self_attention.output_projection", "feed_forward.second")
    branch_weights = ("unit_weights",)

    def __init__(
        self,
        *,
        units: int,
        embed_dim: int,
        self_attention: UnitAttention,
        feed_forward: UnitFeedForward,
        inputs: UnitInputs,
        order: UnitOrder | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.self_attention_norm = nn.LayerNorm(embed_dim)
        self.inputs = inputs
        self.self_attention = self_attention
        self.feed_forward = feed_forward
        self.order = order
        #: alpha (Equation 10); with an order, of its places (Equation 15).
        self.unit_weights = nn.Parameter(torch.full((units,), 1 / units))
        self.dropout = Dropout(dropout)

    @classmethod
    def prepare(
        cls, layers: Sequence[MultiUnitEncoderLayer], embedded: Tensor, padding: Tensor | None
    ) -> list[tuple[Tensor | None, ...]]:
        """Return for each layer its noise (sources, U x T x B, or None) and the coefficients c of its units (I).

        ``embedded`` is what the stack reads, T x B x d; ``padding``: B x T or None.
        """
        length, batch = embedded.size(0), embedded.size(1)
        sources = [layer.inputs.draw(length, batch, padding, embedded.device) for layer in layers]
        return list(zip(sources, compute_coefficients(layers), strict=True))

    def forward(
        self, stream: Tensor, padding: Tensor | None, sources: Tensor | None = None, weights: Tensor | None = None
    ) -> Tensor:
        """Compute T x B x d from T x B x d; ``padding``: B x T, True at padding.

        ``sources`` and ``weights`` come from :meth:`prepare`. Without sources there is no noise; without weights they
        are computed here.
        """
        # 1. Attention: U x T x B x d, with U = 1 while nothing tells the units apart.
        inputs = self.inputs(self.self_attention_norm(stream), sources)
        attended, _ = self.self_attention(inputs, padding)
        attended = stream + self.dropout(attended)

        # 2. Feed-forward: I x T x B x d, or 1 for a single unit.
        outputs = attended + self.dropout(self.feed_forward(attended))

        # 3. The weighted sum: T x B x d. Under autocast it is as precise as the outputs.
        if weights is None:
            weights = self.coefficients()
        return weighted_sum(outputs, weights.to(outputs.dtype).unbind())

    def coefficients(self) -> Tensor:
        """Return the coefficients c of the units' outputs, I."""
        return compute_coefficients([self])[0]


def compute_coefficients(layers: Sequence[MultiUnitEncoderLayer]) -> list[Tensor]:
    """Return the coefficients c of each layer's units, I each; all layers have an order or none has."""
    orders = [layer.order for layer in layers if layer.order is not None]
    if not orders:
        return [layer.unit_weights for layer in layers]
    return list(coefficients(orders, torch.stack([layer.unit_weights for layer in layers])))
