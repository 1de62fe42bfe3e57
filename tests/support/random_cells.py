"""Depth-wise cells with random parameters, and what they are given."""

from __future__ import annotations

import torch
from torch import Tensor
from triton_probe import DEVICE

from fairseq_depthwise.models.depthwise_lstm.cell import DepthwiseLSTMCell, Gates, HiddenNet


def build_cell(
    width: int = 12,
    hidden_dim: int | None = 20,
    *,
    activation: str = "glu",
    input_dim: int | None = None,
    dropout: float = 0.0,
    joint: bool = False,
    skip: bool = False,
    kernel: str = "eager",
) -> DepthwiseLSTMCell:
    torch.manual_seed(1)
    input_dim = input_dim or 2 * width
    cell = DepthwiseLSTMCell(
        gates=Gates(input_dim=input_dim, embed_dim=width, joint=joint),
        hidden_net=HiddenNet(
            input_dim=input_dim,
            embed_dim=width,
            hidden_dim=hidden_dim,
            activation=activation,
            dropout=dropout,
            activation_dropout=dropout,
        ),
        attention_skip=skip,
        kernel=kernel,
    )
    for name, parameter in cell.named_parameters():
        if "norm" in name:
            torch.nn.init.normal_(parameter, mean=0.7)
    return cell.to(DEVICE)


def inputs(
    width: int = 12, length: int = 3, batch: int = 5, dtype: torch.dtype = torch.float32, attended: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention's output, and the state below, with odd sizes."""
    generator = torch.Generator().manual_seed(2)
    parts = torch.randn(attended + 2, length, batch, width, generator=generator).to(DEVICE, dtype)
    return torch.cat(list(parts[2:]), dim=-1), parts[0], parts[1]
