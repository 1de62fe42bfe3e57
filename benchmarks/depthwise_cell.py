"""The depth-wise LSTM cell alone: one pass forward and backward with each kernel, beside the plain form."""

from __future__ import annotations

from typing import Any

import torch
from side_by_side import TYPES

from fairseq_depthwise.modules.depthwise_cell import DepthwiseLSTMCell, DepthwiseState, Gates, HiddenNet
from fairseq_depthwise.modules.fused_cell import choose_kernel

#: Passes in one measurement; on a GPU a single one is over before the clock can tell.
PASSES = {"cpu": 1, "cuda": 20}

#: Target positions of the tensors that go through the cell, T of T x B x d.
POSITIONS = 25


class CellPasses:
    """Some passes forward and backward through one cell in training; all kernels have the same weights and inputs.

    Args:
        kernel: the cell's kernel.
        model: configuration of the model whose cell this is.
        tokens: positions that go through at once, T x B.
        device: ``cpu`` or ``cuda``.
        precision: ``fp32`` or ``bf16``.
    """

    def __init__(self, kernel: str, *, model: Any, tokens: int, device: str, precision: str) -> None:
        torch.manual_seed(1)
        width = model.decoder_embed_dim
        cell = DepthwiseLSTMCell(
            gates=Gates(input_dim=2 * width, embed_dim=width),
            hidden_net=HiddenNet(
                input_dim=2 * width,
                embed_dim=width,
                hidden_dim=model.depthwise_hidden_dim,
                dropout=model.dropout,
                activation_dropout=model.activation_dropout,
            ),
            kernel=kernel,
        )
        place: dict[str, Any] = {"device": device, "dtype": TYPES[precision]}
        self.cell = cell.to(**place).train()
        shape = (POSITIONS, max(1, tokens // POSITIONS), width)
        self.attended, self.output, self.below = (torch.randn(shape, **place, requires_grad=True) for _ in range(3))
        self.gradients = [torch.randn(shape, **place) for _ in range(2)]
        self.passes = PASSES[device]
        self.kernel = kernel
        self.device = device

    def __call__(self, _: int = 0) -> None:
        for _pass in range(self.passes):
            above = self.cell(self.attended, DepthwiseState(output=self.output, cell=self.below))
            torch.autograd.backward([above.output, above.cell], self.gradients)
            # Gradients that stay would be added to: work and memory that no kernel has a part in.
            for tensor in (self.attended, self.output, self.below, *self.cell.parameters()):
                tensor.grad = None

    @property
    def fell_back(self) -> bool:
        """Whether the plain form was run in place of the kernel; known after the first pass."""
        used = choose_kernel(self.kernel, torch.device(self.device), fusible=True)
        return self.kernel not in ("auto", used)
