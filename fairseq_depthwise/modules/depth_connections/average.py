"""Averages over depth with learned weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.utils.rnn import pad_sequence

from fairseq_depthwise.modules.stack import Connection, OfLayers, StackShape
from fairseq_depthwise.modules.weighted_sum import weighted_sum


class AverageState(NamedTuple):
    """What runs up the stack.

    Attributes:
        stream: the average that the next layer reads, T x B x d.
        outputs: X_0 to X_i, the embedding and the layers' outputs so far, T x B x d each.
        workspace: memory that the averages share where gradients are needed; None elsewhere.
    """

    stream: Tensor
    outputs: tuple[Tensor, ...]
    workspace: _Workspace | None


class AverageConnection(Connection):
    """Depth-weighted averages: after layer i the stream is ``sum_{j=0..i} a_ij X_j``.

    Source: "DenseFormer: Enhancing Information Flow in Transformers via Depth Weighted Averaging" (Pagliardini et al.
    2024), Equations 1 and 2, without dilation and with period 1. X_0 is the embedding and X_j the output of layer j,
    counted from 1, before averaging. The weights are free scalars; initially a_ii is 1 and the others are 0, which is
    the plain pre-norm Transformer.
    """

    has_sublayers = True

    def __init__(self, shape: StackShape) -> None:
        super().__init__(shape)
        self.of_layers = {"rows": OfLayers(weighs=True, sublayers=shape.sublayers)}
        #: Row i of a, counted from 0, with i + 2 weights.
        self.rows = nn.ParameterList(torch.arange(row + 2).eq(row + 1).float() for row in range(shape.layers))

    def initial_state(self, embedded: Tensor) -> AverageState:
        workspace = _Workspace(list(self.rows), embedded) if torch.is_grad_enabled() else None
        return AverageState(embedded, (embedded,), workspace)

    def update(self, state: AverageState, index: int, output: Tensor) -> AverageState:
        outputs = (*state.outputs, output)
        workspace = state.workspace
        if workspace is None:
            stream = weighted_sum(outputs, self.rows[index].unbind())
            return AverageState(stream, outputs, None)

        # The embedding enters the workspace together with the first layer's output.
        new_sources = outputs if index == 0 else (output,)
        first_new = index + 2 - len(new_sources)
        columns = workspace.weights.t()[first_new : index + 2, index:].contiguous()
        stream = _Average.apply(workspace, index, state.stream, columns, *new_sources)
        return AverageState(stream, outputs, workspace)


class _Workspace:
    """Memory that the averages of one pass up a stack share, so that each source and each gradient is stored once.

    Attributes:
        weights: a, with 0 where a row has no weight; L x (L + 1).
        values: X_0 to X_L, as far as they are computed; (L + 1) x (T B d).
        grads: gradients of the averages in the backward pass, from the last one down; L x (T B d).
        backward_pass: autograd's ID of the backward pass that computed them.
    """

    def __init__(self, rows: Sequence[Tensor], embedded: Tensor) -> None:
        self.weights = pad_sequence(list(rows), batch_first=True).to(embedded.dtype)
        self.values = embedded.new_empty(len(rows) + 1, embedded.numel())
        self.grads: Tensor | None = None
        self.backward_pass = -1


class _Average(torch.autograd.Function):
    """One average of all sources so far; PyTorch's own gradients read and write each source several times."""

    @staticmethod
    def forward(
        ctx: Any, workspace: _Workspace, index: int, stream: Tensor, columns: Tensor, *new_sources: Tensor
    ) -> Tensor:
        """Return row ``index`` of a times X, T x B x d.

        Args:
            stream: the average below. Its values are not used: it tells autograd that this average's gradient comes
                before those of the averages below, even if a layer in between passes none on.
            columns: the weights of the new sources, in this row and above; sources x (L - index).
            new_sources: X_0 and X_1 in the first row, X_(index + 1) in the others.
        """
        ctx.workspace = workspace
        ctx.index = index
        ctx.places = range(index + 2 - len(new_sources), index + 2)
        ctx.shape = new_sources[0].shape
        ctx.save_for_backward(columns)
        for place, source in zip(ctx.places, new_sources, strict=True):
            workspace.values[place] = source.reshape(-1)
        # Autocast would copy all values to a smaller type.
        with torch.autocast(workspace.values.device.type, enabled=False):
            weights = workspace.weights.detach()[index, : index + 2]
            return torch.mv(workspace.values[: index + 2].t(), weights).view(ctx.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        """Return the gradients of columns and new sources.

        These sources are read by this average and all above, whose gradients are known by now.
        """
        workspace = ctx.workspace
        (columns,) = ctx.saved_tensors

        # A backward pass may end above the first row and leave its gradients behind, so passes are identified by their
        # ID, as in PyTorch's own hooks for several gradients. Averages that no loss depends on have the gradient 0.
        backward_pass = torch._C._current_graph_task_id()
        if workspace.grads is None or workspace.backward_pass != backward_pass:
            workspace.backward_pass = backward_pass
            workspace.grads = torch.zeros_like(workspace.values[1:])

        workspace.grads[ctx.index] = grad.reshape(-1)
        grads_above = workspace.grads[ctx.index :]  # (L - index) x (T B d)
        of_columns = torch.stack([torch.mv(grads_above, workspace.values[place]) for place in ctx.places])
        of_sources = [torch.mv(grads_above.t(), column).view(ctx.shape) for column in columns]
        if ctx.index == 0:
            workspace.grads = None
        return None, None, None, of_columns, *of_sources
