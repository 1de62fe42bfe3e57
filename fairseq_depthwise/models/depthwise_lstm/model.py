"""The Transformer whose layers are connected by a depth-wise LSTM.

Source: "Rewiring the Transformer with Depth-Wise LSTMs" (the later version of "Transformer with Depth-Wise LSTM"). The
default is the papers' base model with a two-layer GLU hidden net, gates shared by the layers of a stack, and the
decoder's two attentions merged by addition. ``docs/depthwise_lstm.md`` lists what the paper leaves open.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fairseq.logging import metrics
from fairseq.models import register_model
from torch import Tensor, nn

from fairseq_compat import UserError
from fairseq_depthwise.models.base.assembly import Stacks, build_attention
from fairseq_depthwise.models.base.config import EncoderDecoderConfig, option, register_presets
from fairseq_depthwise.models.base.model import StackModel
from fairseq_depthwise.models.depthwise_lstm.cell import (
    CELLS,
    FORGET_GATE,
    DepthwiseCell,
    DepthwiseState,
    Gates,
    GateValues,
    HiddenNet,
)
from fairseq_depthwise.models.depthwise_lstm.layers import (
    DECODER_MERGES,
    DepthwiseConnection,
    DepthwiseDecoderLayer,
    DepthwiseEncoderLayer,
)
from fairseq_depthwise.models.depthwise_lstm.presets import PRESETS
from fairseq_depthwise.modules.activations import ACTIVATIONS, WITHOUT_HALVING, require_even
from fairseq_depthwise.modules.attention import MultiheadAttention

#: Options of cells with gates.
_GATE_OPTIONS = (
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

    # The cell, and what the cells of a stack share.
    depthwise_cell: str = option(
        "lstm",
        "the cell that connects the layers; the paper's is lstm, and rnn its ablation without gates",
        one_of=tuple(CELLS),
    )
    depthwise_hidden_layers: int = option(2, "layers of the cell's hidden net: Eq 6, or Eq 5", one_of=(2, 1))
    depthwise_hidden_dim: int = option(
        2048, "width H of the hidden net's first of two layers, before the GLU halves it", at_least=2, at_most=2**20
    )
    depthwise_hidden_activation: str = option(
        "glu", "activation of the hidden net; with one layer, glu means gelu", one_of=tuple(ACTIVATIONS)
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
        "separate",
        "statistics of the gates' layer norms: of each gate, or of all together",
        one_of=("separate", "joint"),
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
        gate_names = CELLS[self.depthwise_cell].gate_names
        if not gate_names:
            reason = f"belongs to the gates of a cell, and --depthwise-cell {self.depthwise_cell} has none"
            self.require_defaults(_GATE_OPTIONS, reason)
        if FORGET_GATE not in gate_names:
            reason = f"belongs to a forget gate, and --depthwise-cell {self.depthwise_cell} has none"
            self.require_defaults(("depthwise_forget_bias",), reason)

    @property
    def activation(self) -> str:
        """The activation of the hidden net; a single layer has no width to halve (Eq 5)."""
        activation = self.depthwise_hidden_activation
        if self.depthwise_hidden_layers == 1 and ACTIVATIONS[activation].halves:
            return WITHOUT_HALVING
        return activation


#: Priority of the metrics of single layers: at the end of a line of the log, behind all of fairseq's.
_LAYER_PRIORITY = 100_000


class DepthwiseStacks(Stacks):
    """Builds both stacks' layers.

    A shared part is one module object, so the optimizer has one parameter and a checkpoint one storage for it.
    """

    connection = DepthwiseConnection

    def __init__(self, config: DepthwiseLSTMTransformerConfig) -> None:
        super().__init__(config)
        self._model_gates = None
        if config.depthwise_gate_scope == "model":
            self._model_gates = self._new_gates(2 * self.width)

    def layers(self, side: str) -> list[nn.Module]:
        return self._encoder_layers() if side == "encoder" else self._decoder_layers()

    def _encoder_layers(self) -> list[nn.Module]:
        new_cell = self._make_cell_builder("encoder", 2 * self.width)
        layers: list[nn.Module] = []
        for index in range(self.depth("encoder")):
            layer = DepthwiseEncoderLayer(
                self_attention=self._build_attention("encoder"),
                cell=new_cell(),
                input_norm=self._build_norm(index),
                dropout=self.config.dropout,
            )
            layers.append(layer)
        return layers

    def _decoder_layers(self) -> list[nn.Module]:
        # The last cell reads the output so far (d) and the merged attentions.
        merge = DECODER_MERGES[self.config.decoder_merge]
        new_cell = self._make_cell_builder(
            "decoder", (1 + merge.width) * self.width, place="b" if merge.two_cells else ""
        )
        new_middle_cell = None
        if merge.two_cells:
            new_middle_cell = self._make_cell_builder("decoder", 2 * self.width, place="a")

        layers: list[nn.Module] = []
        for index in range(self.depth("decoder")):
            # Parts draw their initial parameters in this order, which a seed's results depend on.
            layer = DepthwiseDecoderLayer(
                self_attention=self._build_attention("decoder"),
                cross_attention=self._build_attention("decoder", attend_encoder=True),
                cell=new_cell(),
                middle_cell=None if new_middle_cell is None else new_middle_cell(),
                input_norm=self._build_norm(index),
                query_norm=self._build_norm(index),
                merge=merge,
                dropout=self.config.dropout,
            )
            layers.append(layer)
        return layers

    def _build_attention(self, side: str, *, attend_encoder: bool = False) -> MultiheadAttention:
        config = self.config
        heads = config.encoder_attention_heads if side == "encoder" else config.decoder_attention_heads
        return build_attention(config, heads=heads, bias=config.attention_bias, attend_encoder=attend_encoder)

    def _build_norm(self, index: int) -> nn.LayerNorm | None:
        """Return a norm, except for a stack's first layer: the published counts have none before its attentions."""
        return None if index == 0 else nn.LayerNorm(self.width)

    def _make_cell_builder(self, side: str, input_dim: int, *, place: str = "") -> Callable[[], DepthwiseCell]:
        """Return a function that builds the cells at one place of a stack, which share what the options say.

        ``place``: of two cells in a layer, "a" for the first and "b" for the second.
        """
        config = self.config
        cell_class: Any = CELLS[config.depthwise_cell]
        shared_net = self._new_net(input_dim) if config.depthwise_sharing == "all" else None
        if not cell_class.gate_names:
            return lambda: cell_class(hidden_net=shared_net or self._new_net(input_dim))

        shared_gates = self._model_gates
        if shared_gates is None and config.depthwise_sharing != "none":
            shared_gates = self._new_gates(input_dim)
        numbers = itertools.count(1)

        def new_cell() -> DepthwiseCell:
            cell: DepthwiseCell = cell_class(
                gates=shared_gates or self._new_gates(input_dim),
                hidden_net=shared_net or self._new_net(input_dim),
                attention_skip=config.depthwise_attention_skip,
                observer=(
                    _GateMetrics(side, f"{next(numbers)}{place}", cell_class.gate_names) if config.log_gates else None
                ),
            )
            return cell

        return new_cell

    def _new_net(self, input_dim: int) -> HiddenNet:
        config = self.config
        return HiddenNet(
            input_dim=input_dim,
            embed_dim=self.width,
            hidden_dim=config.depthwise_hidden_dim if config.depthwise_hidden_layers == 2 else None,
            activation=config.activation,
            dropout=config.dropout,
            activation_dropout=config.activation_dropout,
        )

    def _new_gates(self, input_dim: int) -> Gates:
        config = self.config
        return Gates(
            input_dim=input_dim,
            embed_dim=self.width,
            names=CELLS[config.depthwise_cell].gate_names,
            forget_bias=config.depthwise_forget_bias,
            gain=config.depthwise_gate_gain,
            joint=config.depthwise_gate_norm == "joint",
        )


class _GateMetrics:
    """``--log-gates``: logs the gates and the state of a cell as training metrics.

    These are mean and deviation of each gate, and the mean length of the cell state: ``encoder_forget_gate_layer2``,
    ``encoder_forget_gate_deviation_layer2``, ``encoder_cell_norm_layer2`` and so on, and their means over the stack.
    ``layer`` is the layer's number, followed by "a" or "b" where it has two cells.
    """

    def __init__(self, side: str, layer: str, gate_names: Sequence[str]) -> None:
        self.side = side
        self.layer = layer
        self.gate_names = gate_names

    def __call__(self, gates: GateValues, state: DepthwiseState) -> None:
        for name, gate in zip(self.gate_names, gates, strict=True):
            values = gate.float()
            self._log(name, values.mean())
            self._log(f"{name}_deviation", values.std())
        self._log("cell_norm", state.cell.float().norm(dim=-1).mean())

    def _log(self, name: str, value: Tensor) -> None:
        # fairseq averages what is logged under one name: here, over the layers of a stack.
        metrics.log_scalar(f"{self.side}_{name}", value, round=3)
        metrics.log_scalar(f"{self.side}_{name}_layer{self.layer}", value, priority=_LAYER_PRIORITY, round=3)


@register_model("depthwise_lstm_transformer", dataclass=DepthwiseLSTMTransformerConfig)
class DepthwiseLSTMTransformer(StackModel):
    """Encoder and decoder of attention layers that depth-wise LSTM cells connect."""

    options = DepthwiseLSTMTransformerConfig
    stacks = DepthwiseStacks


register_presets("depthwise_lstm_transformer", PRESETS)
