"""Averages over depth with learned weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.utils.rnn import pad_sequence

from fairseq_depthwise.modules.connections.sources import source_names, weighted_parts, weighted_sum
from fairseq_depthwise.modules.stack import Connection, OfLayers, StackShape


class _Kept:
    """What the rows of one pass up a stack share, so that each source is stored once and each gradient, too.

    Attributes:
        weights: a, with 0 where a row has no weight; L x (L + 1).
        values: X_0 to X_L, as far as they are computed; (L + 1) x (T B d).
        grads: of the averages, from the last one down, in the backward pass; L x (T B d).
        backward: the number of the backward pass that they are of.
    """

    def __init__(self, rows: Sequence[Tensor], embedded: Tensor) -> None:
        self.weights = pad_sequence(list(rows), batch_first=True).to(embedded.dtype)
        self.values = embedded.new_empty(len(rows) + 1, embedded.numel())
        self.grads: Tensor | None = None
        self.backward = -1


class _Row(torch.autograd.Function):
    """One average of all sources so far; PyTorch's own gradients read and write each source several times."""

    @staticmethod
    def forward(ctx: Any, kept: _Kept, index: int, below: Tensor, columns: Tensor, *sources: Tensor) -> Tensor:
        """Return row ``index`` of a times X. ``sources`` are new, and ``columns`` their weights in this row and above.

        In the first row X_0 and X_1 are new, then one of X. ``below``, the stream so far, is not read: by it PyTorch
        knows that gradients of this row come before those of the rows below, even if a layer passes none on.
        """
        ctx.kept, ctx.index, ctx.new = kept, index, range(index + 2 - len(sources), index + 2)
        for place, source in zip(ctx.new, sources, strict=True):
            kept.values[place] = source.reshape(-1)
        ctx.save_for_backward(columns)
        ctx.shape = sources[0].shape
        with torch.autocast(kept.values.device.type, enabled=False):  # it would copy all values to a smaller type
            weights = kept.weights.detach()[index, : index + 2]
            return torch.mv(kept.values[: index + 2].t(), weights).view(ctx.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        """Return the gradients of columns and sources: all averages above, which read them, have theirs by now."""
        kept, (columns,) = ctx.kept, ctx.saved_tensors
        number = torch._C._current_graph_task_id()  # as PyTorch's own hooks of several gradients tell passes apart
        if kept.grads is None or kept.backward != number:  # a pass before may have ended above row 0
            kept.backward = number
            kept.grads = torch.zeros_like(kept.values[1:])  # which those stay that no loss has read
        kept.grads[ctx.index] = grad.reshape(-1)
        above = kept.grads[ctx.index :]
        of_columns = torch.stack([torch.mv(above, kept.values[place]) for place in ctx.new])
        of_sources = [torch.mv(above.t(), column).view(ctx.shape) for column in columns]
        if ctx.index == 0:
            kept.grads = None
        return None, None, None, of_columns, *of_sources


class Averages(NamedTuple):
    """The average that the next layer reads and all sources so far, T x B x d; what rows share for gradients."""

    stream: Tensor
    outputs: tuple[Tensor, ...]
    kept: _Kept | None


class AverageConnection(Connection):
    """Depth-weighted averages: after layer i the stream is ``sum_{j=0..i} a_ij X_j``.

    Source: "DenseFormer: Enhancing Information Flow in Transformers via Depth Weighted Averaging" (Pagliardini et al.
    2024), Equations 1 and 2, without dilation and with period 1. X_0 is the embedding and X_j the output of layer j,
    counted from 1, before averaging. The weights are free scalars; at first a_ii is 1 and the others are 0, which is
    the plain pre-norm Transformer.
    """

    has_units = True

    def __init__(self, shape: StackShape) -> None:
        super().__init__(shape)
        self.of_layers = {"rows": OfLayers(weighs=True, units=self.units)}
        #: Row i of a, counted from 0, with i + 2 weights.
        self.rows = nn.ParameterList(torch.arange(row + 2).eq(row + 1).float() for row in range(shape.layers))

    def initial_state(self, embedded: Tensor) -> Averages:
        kept = _Kept([*self.rows], embedded) if torch.is_grad_enabled() else None
        return Averages(embedded, (embedded,), kept)

    def update(self, state: Averages, index: int, output: Tensor) -> Averages:
        outputs, kept = (*state.outputs, output), state.kept
        if kept is None:
            return Averages(weighted_sum(outputs, self.rows[index].unbind()), outputs, kept)
        new = outputs if index == 0 else (output,)
        columns = kept.weights.t()[index + 2 - len(new) : index + 2, index:].contiguous()
        return Averages(_Row.apply(kept, index, state.stream, columns, *new), outputs, kept)

    def source_weights(self, states: Sequence[Averages]) -> dict[str, Tensor]:
        """Return row i of a, above layer i: the weights of X_0 to X_i."""
        outputs = len(states[-1].outputs)
        if outputs == 1:  # the first layer reads the embedding
            return {}
        return dict(zip(source_names(outputs, units=self.units), self.rows[outputs - 2].unbind(), strict=True))

    def source_parts(self, states: Sequence[Averages]) -> dict[str, Tensor]:
        """Return a_ij X_j."""
        weights = self.source_weights(states)
        return weighted_parts(states[-1].outputs, weights) if weights else {}
