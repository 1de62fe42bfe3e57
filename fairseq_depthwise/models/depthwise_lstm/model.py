"""The Transformer whose layers are connected by a depth-wise LSTM.

Source: "Rewiring the Transformer with Depth-Wise LSTMs" (the later version of "Transformer with Depth-Wise LSTM"). The
default is the papers' base model with a two-layer GLU hidden net, gates shared by the layers of a stack, and the
decoder's two attentions merged by addition. Where the paper is silent: ``docs/depthwise_lstm.md``.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from fairseq.logging import metrics
from fairseq.models import register_model
from torch import Tensor, nn

from fairseq_compat import UserError
from fairseq_depthwise.models.base.assembly import Stacks, build_attention
from fairseq_depthwise.models.base.config import EncoderDecoderConfig, option, register_presets
from fairseq_depthwise.models.base.model import StackModel
from fairseq_depthwise.models.depthwise_lstm.cell import (
    DepthwiseLSTMCell,
    DepthwiseRNNCell,
    DepthwiseState,
    Gates,
    GateValues,
    HiddenNet,
)
from fairseq_depthwise.models.depthwise_lstm.layers import (
    DECODER_MERGES,
    DepthwiseCell,
    DepthwiseConnection,
    DepthwiseDecoderLayer,
    DepthwiseEncoderLayer,
)
from fairseq_depthwise.models.depthwise_lstm.presets import PRESETS
from fairseq_depthwise.modules.activations import ACTIVATIONS, WITHOUT_HALVING, require_even
from fairseq_depthwise.modules.attention import MultiheadAttention

#: Options that an RNN without gates does not have.
_OF_THE_LSTM = (
    "depthwise_gate_scope",
    "depthwise_forget_bias",
    "depthwise_gate_gain",
    "depthwise_gate_norm",
    "depthwise_attention_skip",
    "log_gates",
)


@dataclass
class DepthwiseLSTMTransformerConfig(EncoderDecoderConfig):
    """Options of ``depthwise_lstm_transformer``."""

    depthwise_cell: str = option(
        "lstm", "what connects the layers: an LSTM, or an RNN without gates", one_of=("lstm", "rnn")
    )
    depthwise_hidden_layers: int = option(2, "layers of the cell's hidden net: Eq 6, or Eq 5", one_of=(2, 1))
    depthwise_hidden_dim: int = option(
        2048, "width H of the hidden net's first of two layers, before the GLU halves it", at_least=2, at_most=2**20
    )
    depthwise_hidden_activation: str = option(
        "glu", "activation of the hidden net; one layer has gelu where this says glu", one_of=tuple(ACTIVATIONS)
    )
    depthwise_sharing: str = option(
        "gates", "what the cells of a stack share: the gates, nothing, or all", one_of=("gates", "none", "all")
    )
    depthwise_gate_scope: str = option(
        "stack", "shared gates: one set for each stack, or one for the model", one_of=("stack", "model")
    )
    depthwise_forget_bias: float = option(
        0.0, "start value of the bias of the forget gate's layer norm; the paper has 0", changes_parameters=False
    )
    depthwise_gate_gain: float = option(
        1.0, "start value of the weights of the gates' layer norms; the paper has 1", changes_parameters=False
    )
    depthwise_gate_norm: str = option(
        "separate", "statistics of the gates' layer norms: of each gate, or of all three", one_of=("separate", "joint")
    )
    depthwise_attention_skip: bool = option(False, "add the attention's output to the hidden net's")
    decoder_merge: str = option(
        "add", "how self- and cross-attention reach the decoder's cell", one_of=tuple(DECODER_MERGES)
    )
    attention_bias: bool = option(False, "give the attention projections biases")
    log_gates: bool = option(
        False, "log mean and deviation of the gates, and the norm of the cell, in training", changes_parameters=False
    )

    def check(self) -> None:
        super().check()
        require_even(self.activation, "--depthwise-hidden-dim", self.depthwise_hidden_dim)
        if self.depthwise_gate_scope == "model" and self.depthwise_sharing == "none":
            raise UserError("--depthwise-gate-scope model contradicts --depthwise-sharing none, which shares nothing")
        if self.depthwise_gate_scope == "model" and DECODER_MERGES[self.decoder_merge].width != 1:
            raise UserError(
                f"--depthwise-gate-scope model is impossible with --decoder-merge {self.decoder_merge}: the gates of "
                "encoder and decoder read different widths; leave it at stack"
            )
        if self.depthwise_cell == "rnn":
            self.require_defaults(_OF_THE_LSTM, "belongs to the gates of the LSTM, and --depthwise-cell is rnn")

    @property
    def activation(self) -> str:
        """The activation of the hidden net; one layer has no width to halve (Eq 5)."""
        chosen = self.depthwise_hidden_activation
        one_layer = self.depthwise_hidden_layers == 1
        return WITHOUT_HALVING if one_layer and ACTIVATIONS[chosen].halves else chosen


#: Priority of the metrics of single layers: at the end of a line of the log, behind all that fairseq has.
_OF_LAYERS = 100_000


class DepthwiseStacks(Stacks):
    """Builds both stacks' layers.

    A shared part is one module object, so that it is one parameter to the optimizer and one storage in a checkpoint.
    """

    connection = DepthwiseConnection

    def __init__(self, config: DepthwiseLSTMTransformerConfig) -> None:
        super().__init__(config)
        self._gates_of_the_model = None
        if config.depthwise_gate_scope == "model":
            self._gates_of_the_model = self._new_gates(2 * self.width)

    def layers(self, side: str) -> list[nn.Module]:
        config, heads = self.config, getattr(self.config, f"{side}_attention_heads")

        def attention(attend_encoder: bool = False) -> MultiheadAttention:
            return build_attention(config, heads=heads, bias=config.attention_bias, attend_encoder=attend_encoder)

        def norm(index: int) -> nn.LayerNorm | None:
            """Return a norm, except for a stack's first layer: the published counts have none before its attentions."""
            return None if index == 0 else nn.LayerNorm(self.width)

        if side == "encoder":
            cell = self._cells(side, 2 * self.width)
            return [
                DepthwiseEncoderLayer(
                    self_attention=attention(), cell=cell(), input_norm=norm(index), dropout=config.dropout
                )
                for index in range(self.depth(side))
            ]
        merge = DECODER_MERGES[config.decoder_merge]
        cell = self._cells(side, (1 + merge.width) * self.width, place="b" if merge.two_cells else "")
        middle_cell = self._cells(side, 2 * self.width, place="a") if merge.two_cells else None
        return [
            DepthwiseDecoderLayer(
                self_attention=attention(),
                cross_attention=attention(attend_encoder=True),
                cell=cell(),
                middle_cell=None if middle_cell is None else middle_cell(),
                input_norm=norm(index),
                query_norm=norm(index),
                merge=merge,
                dropout=config.dropout,
            )
            for index in range(self.depth(side))
        ]

    def _cells(self, side: str, input_dim: int, *, place: str = "") -> Callable[[], DepthwiseCell]:
        """Return a function that makes the cells at one place of a stack, which share what is to be shared.

        ``place``: of two cells in a layer, "a" for the first and "b" for the second.
        """
        config = self.config
        numbers = itertools.count(1)

        def new_net() -> HiddenNet:
            return HiddenNet(
                input_dim=input_dim,
                embed_dim=self.width,
                hidden_dim=config.depthwise_hidden_dim if config.depthwise_hidden_layers == 2 else None,
                activation=config.activation,
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
            attention_skip=config.depthwise_attention_skip,
            observer=_GateMetrics(side, f"{next(numbers)}{place}") if config.log_gates else None,
        )

    def _new_gates(self, input_dim: int) -> Gates:
        config = self.config
        return Gates(
            input_dim=input_dim,
            embed_dim=self.width,
            forget_bias=config.depthwise_forget_bias,
            gain=config.depthwise_gate_gain,
            joint=config.depthwise_gate_norm == "joint",
        )


class _GateMetrics:
    """``--log-gates``: what a cell does, as training metrics.

    Mean and deviation of each gate, and the mean length of the cell state: ``encoder_forget_gate_layer2``,
    ``encoder_forget_gate_deviation_layer2``, ``encoder_cell_norm_layer2`` and so on, and their means over the stack.
    ``layer``: its number, followed by "a" or "b" where it has two cells.
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


@register_model("depthwise_lstm_transformer", dataclass=DepthwiseLSTMTransformerConfig)
class DepthwiseLSTMTransformer(StackModel):
    """Encoder and decoder of attention layers that depth-wise LSTM cells connect."""

    options = DepthwiseLSTMTransformerConfig
    stacks = DepthwiseStacks


register_presets("depthwise_lstm_transformer", PRESETS)
