"""Linear layers and layer norms of several parallel units, computed together.

Tensors of units are U x T x B x C. U = 1 stands for all units: values that every unit reads, or a layer that the units
share. Nothing is copied for the other units then.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class UnitLinear(nn.Module):
    """``x_i W_i + b_i`` for every unit i, with W_i in x out: the layout in which a batched product has its gradient.

    ``units`` = 1 is a layer that all units share. Xavier-uniform initialization, biases 0.
    """

    def __init__(self, *, units: int, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = nn.Parameter(torch.empty(units, in_features, out_features))
        self.bias = nn.Parameter(torch.zeros(units, out_features))
        for weight in self.weight:
            nn.init.xavier_uniform_(weight.detach())

    def forward(self, values: Tensor) -> Tensor:
        """Compute U x T x B x out from U x T x B x in; U of the result is the larger of the input's and ``units``."""
        units = self.weight.size(0)
        # One layer for all units needs no batched product.
        if units == 1:
            return F.linear(values, self.weight[0].t(), self.bias[0])
        rows = values.flatten(1, 2).expand(units, -1, -1)  # U x T B x in
        product = torch.baddbmm(self.bias.unsqueeze(1), rows, self.weight)
        return product.view(units, *values.shape[1:3], self.out_features)

    def extra_repr(self) -> str:
        return f"units={self.weight.size(0)}, in_features={self.in_features}, out_features={self.out_features}"


class UnitLayerNorm(nn.Module):
    """A layer norm for each unit; ``units`` = 1 is a norm that all units share."""

    def __init__(self, *, units: int, embed_dim: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(units, embed_dim))
        self.bias = nn.Parameter(torch.zeros(units, embed_dim))

    def forward(self, values: Tensor) -> Tensor:
        """Normalize U x T x B x d; U and the number of norms are equal, or one of them is 1."""
        width = values.size(-1)
        if self.weight.size(0) == 1:
            return F.layer_norm(values, (width,), self.weight[0], self.bias[0], self.eps)
        # One normalization for all units, then the scale and shift of each: U x 1 x 1 x d.
        normalized = F.layer_norm(values, (width,), eps=self.eps)
        return torch.addcmul(self.bias[:, None, None], normalized, self.weight[:, None, None])
