"""The Transformer whose layers are connected by a depth-wise LSTM.

Source: "Rewiring the Transformer with Depth-Wise LSTMs" (the later version of "Multi-Layer Transformers with
Depth-Wise LSTMs"). The default is the papers' base model with a two-layer GLU hidden net, gates shared by the layers
of a stack, and the decoder's two attentions merged by addition. Where the paper is silent: ``docs/depthwise_lstm.md``.
"""

from dataclasses import dataclass
from typing import Any

from fairseq.models import register_model
from fairseq.tasks import FairseqTask

from fairseq_compat import UserError
from fairseq_depthwise.models.base.assembly import assemble
from fairseq_depthwise.models.base.config import EncoderDecoderConfig, option
from fairseq_depthwise.models.base.model import StackModel
from fairseq_depthwise.models.base.presets import register_presets
from fairseq_depthwise.models.depthwise_lstm.cell import ACTIVATIONS
from fairseq_depthwise.models.depthwise_lstm.kernels.fused_cell import KERNELS
from fairseq_depthwise.models.depthwise_lstm.presets import PRESETS
from fairseq_depthwise.models.depthwise_lstm.stacks import DepthwiseStacks


@dataclass
class DepthwiseLSTMTransformerConfig(EncoderDecoderConfig):
    """Options of ``depthwise_lstm_transformer``."""

    depthwise_cell: str = option(
        "lstm", "what connects the layers: an LSTM, or an RNN without gates", one_of=("lstm", "rnn")
    )
    depthwise_hidden_layers: int = option(2, "layers of the cell's hidden net: Eq 6, or Eq 5", one_of=(2, 1))
    depthwise_hidden_dim: int = option(
        2048, "width H of the hidden net's first of two layers, before the GLU halves it", at_least=2
    )
    depthwise_hidden_activation: str = option(
        "glu", "activation of the hidden net; one layer has gelu where this says glu", one_of=ACTIVATIONS
    )
    depthwise_sharing: str = option(
        "gates", "what the cells of a stack share: the gates, nothing, or all", one_of=("gates", "none", "all")
    )
    depthwise_gate_scope: str = option(
        "stack", "shared gates: one set for each stack, or one for the model", one_of=("stack", "model")
    )
    depthwise_forget_bias: float = option(
        0.0, "start value of the bias of the forget gate's layer norm; the paper has 0"
    )
    decoder_merge: str = option(
        "add", "how self- and cross-attention reach the decoder's cell", one_of=("add", "concat", "two-cells")
    )
    attention_bias: bool = option(False, "give the attention projections biases")
    depthwise_kernel: str = option("auto", "how the cell is computed", one_of=KERNELS)
    log_gates: bool = option(False, "log mean and deviation of the gates, and the norm of the cell, in training")

    def check(self) -> None:
        super().check()
        if (
            self.depthwise_hidden_layers == 2
            and self.depthwise_hidden_activation == "glu"
            and self.depthwise_hidden_dim % 2
        ):
            raise UserError(
                f"--depthwise-hidden-dim {self.depthwise_hidden_dim} is odd; the GLU halves it, so give an even number"
            )
        if self.depthwise_gate_scope == "model":
            self._check_gates_of_the_model()
        if self.depthwise_cell == "rnn" and self.log_gates:
            raise UserError("--log-gates has nothing to log: --depthwise-cell rnn has no gates")
        if self.depthwise_cell == "rnn" and self.depthwise_forget_bias:
            bias = f"{self.depthwise_forget_bias:g}"
            raise UserError(f"--depthwise-forget-bias {bias} has no meaning: --depthwise-cell rnn has no gates")

    def _check_gates_of_the_model(self) -> None:
        if self.depthwise_cell == "rnn":
            raise UserError("--depthwise-gate-scope model has no meaning: --depthwise-cell rnn has no gates")
        if self.depthwise_sharing == "none":
            raise UserError(
                "--depthwise-gate-scope model contradicts --depthwise-sharing none; one shares gates across the model, "
                "the other shares nothing"
            )
        if self.decoder_merge == "concat":
            width = self.encoder_embed_dim
            raise UserError(
                "--depthwise-gate-scope model is impossible with --decoder-merge concat: the encoder's gates read "
                f"{2 * width} values and the decoder's {3 * width}; leave it at stack"
            )


@register_model("depthwise_lstm_transformer", dataclass=DepthwiseLSTMTransformerConfig)
class DepthwiseLSTMTransformer(StackModel):
    """Encoder and decoder of attention layers that depth-wise LSTM cells connect."""

    @classmethod
    def build_model(cls, cfg: Any, task: FairseqTask) -> "DepthwiseLSTMTransformer":
        """Build the model for a task's dictionaries.

        Raises:
            UserError: an option is out of range or contradicts another.
        """
        config = DepthwiseLSTMTransformerConfig.complete(cfg)
        return cls(*assemble(config, task, DepthwiseStacks(config)))


register_presets("depthwise_lstm_transformer", PRESETS)
