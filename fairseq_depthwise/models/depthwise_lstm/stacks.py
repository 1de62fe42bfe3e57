"""How the layers of ``depthwise_lstm_transformer`` are put together: what they share, and what is built anew."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from fairseq.logging import metrics
from torch import Tensor, nn

from fairseq_depthwise.models.base.assembly import build_attention
from fairseq_depthwise.models.depthwise_lstm.cell import (
    DepthwiseLSTMCell,
    DepthwiseRNNCell,
    DepthwiseState,
    Gates,
    GateValues,
    HiddenNet,
)
from fairseq_depthwise.models.depthwise_lstm.layers import DepthwiseCell, DepthwiseDecoderLayer, DepthwiseEncoderLayer
from fairseq_depthwise.modules.attention import MultiheadAttention
from fairseq_depthwise.modules.connection import DepthwiseConnection

if TYPE_CHECKING:
    from fairseq_depthwise.models.depthwise_lstm.model import DepthwiseLSTMTransformerConfig

#: Priority of the metrics of single layers: at the end of a line of the log, behind all that fairseq has.
_OF_LAYERS = 100_000


class DepthwiseStacks:
    """Builds both stacks' layers.

    A shared part is one module object in every layer that shares it, so that it is one parameter to the optimizer and
    one storage in a checkpoint.

    Args:
        config: checked options.
    """

    def __init__(self, config: DepthwiseLSTMTransformerConfig) -> None:
        self.config = config
        self.width = config.encoder_embed_dim
        self._gates_of_the_model = None
        if config.depthwise_gate_scope == "model":
            self._gates_of_the_model = self._new_gates(2 * self.width)

    def encoder_layers(self) -> list[nn.Module]:
        """First to last."""
        config = self.config
        cell = self._cells("encoder", 2 * self.width)
        return [
            DepthwiseEncoderLayer(
                self_attention=self._attention(config.encoder_attention_heads),
                cell=cell(),
                input_norm=self._norm_above_first(index),
                dropout=config.dropout,
            )
            for index in range(config.encoder_layers)
        ]

    def decoder_layers(self) -> list[nn.Module]:
        """First to last."""
        config, heads = self.config, self.config.decoder_attention_heads
        concatenate = config.decoder_merge == "concat"
        two_cells = config.decoder_merge == "two-cells"
        cell = self._cells("decoder", (3 if concatenate else 2) * self.width, place="b" if two_cells else "")
        middle_cell = self._cells("decoder", 2 * self.width, place="a") if two_cells else None
        return [
            DepthwiseDecoderLayer(
                self_attention=self._attention(heads),
                cross_attention=self._attention(heads, attend_encoder=True),
                cell=cell(),
                middle_cell=None if middle_cell is None else middle_cell(),
                input_norm=self._norm_above_first(index),
                query_norm=self._norm_above_first(index),
                concatenate=concatenate,
                dropout=config.dropout,
            )
            for index in range(config.decoder_layers)
        ]

    def _cells(self, side: str, input_dim: int, *, place: str = "") -> Callable[[], DepthwiseCell]:
        """What makes the cells at one place of a stack, one call for each layer; they share what is to be shared.

        ``place``: of two cells in a layer, "a" for the first and "b" for the second.
        """
        config = self.config
        numbers = itertools.count(1)

        def new_net() -> HiddenNet:
            activation = config.depthwise_hidden_activation
            two_layers = config.depthwise_hidden_layers == 2
            return HiddenNet(
                input_dim=input_dim,
                embed_dim=self.width,
                hidden_dim=config.depthwise_hidden_dim if two_layers else None,
                # Eq 5: one layer has no width to halve.
                activation="gelu" if activation == "glu" and not two_layers else activation,
                dropout=config.dropout,
                activation_dropout=config.activation_dropout,
            )

        net = new_net() if config.depthwise_sharing == "all" else None
        if config.depthwise_cell == "rnn":
            return lambda: DepthwiseRNNCell(hidden_net=net or new_net())
        gates = self._gates_of_the_model
        if gates is None and config.depthwise_sharing != "none":
            gates = self._new_gates(input_dim)
        return lambda: DepthwiseLSTMCell(
            gates=gates or self._new_gates(input_dim),
            hidden_net=net or new_net(),
            kernel=config.depthwise_kernel,
            observer=_GateMetrics(side, f"{next(numbers)}{place}") if config.log_gates else None,
        )

    def _new_gates(self, input_dim: int) -> Gates:
        return Gates(input_dim=input_dim, embed_dim=self.width, forget_bias=self.config.depthwise_forget_bias)

    def encoder_connection(self) -> DepthwiseConnection:
        return DepthwiseConnection(embed_dim=self.width)

    def decoder_connection(self) -> DepthwiseConnection:
        return DepthwiseConnection(embed_dim=self.width)

    def _attention(self, heads: int, *, attend_encoder: bool = False) -> MultiheadAttention:
        return build_attention(self.config, heads=heads, bias=self.config.attention_bias, attend_encoder=attend_encoder)

    def _norm_above_first(self, index: int) -> nn.LayerNorm | None:
        """The published parameter counts have no norm before the attentions of a stack's first layer."""
        return None if index == 0 else nn.LayerNorm(self.width)


class _GateMetrics:
    """``--log-gates``: what a cell does, as training metrics.

    Mean and standard deviation of each gate over all its values, and the mean length of the cell state over positions:
    ``encoder_forget_gate_layer2``, ``encoder_forget_gate_deviation_layer2``, ``encoder_cell_norm_layer2`` and so on.
    Without the layer in its name, a metric is the mean of the stack's cells.

    Args:
        side: "encoder" or "decoder".
        layer: the number of the cell's layer, followed by "a" or "b" where that has two cells.
    """

    def __init__(self, side: str, layer: str) -> None:
        self.side = side
        self.layer = layer

    def __call__(self, gates: GateValues, state: DepthwiseState) -> None:
        for name, gate in zip(("input", "forget", "output"), gates, strict=True):
            values = gate.float()
            self._log(f"{name}_gate", values.mean())
            self._log(f"{name}_gate_deviation", values.std())
        self._log("cell_norm", state.cell.float().norm(dim=-1).mean())

    def _log(self, name: str, value: Tensor) -> None:
        metrics.log_scalar(f"{self.side}_{name}", value, round=3)
        metrics.log_scalar(f"{self.side}_{name}_layer{self.layer}", value, priority=_OF_LAYERS, round=3)
