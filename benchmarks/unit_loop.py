"""The Multi-Unit Transformer with its units one after the other: what the batched computation is compared with.

Each unit is an ordinary attention and an ordinary feed-forward net, called in a Python loop as the authors' program
does. Architecture ``mute_transformer_loop``, with the options of ``mute_transformer``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from fairseq.models import register_model
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from fairseq_depthwise.models.base.assembly import assemble
from fairseq_depthwise.models.mute.layers import MultiUnitEncoderLayer
from fairseq_depthwise.models.mute.model import MuteTransformer, MuteTransformerConfig, UnitStacks
from fairseq_depthwise.modules.attention import MultiheadAttention
from fairseq_depthwise.modules.feed_forward import FeedForward
from fairseq_depthwise.modules.relative_positions import RelativePositions
from fairseq_depthwise.modules.stack import EncoderLayer

PROJECTIONS = ("query_projection", "key_projection", "value_projection", "output_projection")


class LoopEncoderLayer(EncoderLayer):
    """A layer that computes what another one does, with the same parameters to begin with.

    Args:
        layer: the batched layer; norm, inputs, order and unit weights are taken over, the units are built anew.
    """

    def __init__(self, layer: MultiUnitEncoderLayer) -> None:
        super().__init__()
        self.self_attention_norm = layer.self_attention_norm
        self.inputs = layer.inputs
        self.order = layer.order
        self.unit_weights = layer.unit_weights
        self.dropout = layer.dropout
        self.attentions = nn.ModuleList(_attentions(layer))
        self.norms, self.nets = (nn.ModuleList(modules) for modules in _feed_forwards(layer))

    @classmethod
    def prepare(
        cls, layers: Sequence[Any], embedded: Tensor, padding: Tensor | None
    ) -> list[tuple[Tensor | None, ...]]:
        length, batch = embedded.size(0), embedded.size(1)
        return [(layer.inputs.draw(length, batch, padding, embedded.device),) for layer in layers]

    def forward(self, stream: Tensor, padding: Tensor | None, rows: Tensor | None = None) -> Tensor:
        inputs = self.inputs(self.self_attention_norm(stream), rows)
        units = len(self.unit_weights)
        coefficients = self.unit_weights if self.order is None else self.order(self.unit_weights)
        outputs = []
        attended: list[Tensor] = []
        for unit in range(units):
            own = inputs[unit % len(inputs)]
            if unit < max(len(inputs), len(self.attentions)):
                found, _ = self.attentions[unit % len(self.attentions)](own, own, padding=padding)
                attended.append(stream + self.dropout(found))
            residual = attended[unit % len(attended)]
            net = unit % len(self.nets)
            outputs.append(residual + self.dropout(self.nets[net](self.norms[net](residual))))
        return torch.stack([one * weight for one, weight in zip(outputs, coefficients, strict=True)]).sum(dim=0)


def _attentions(layer: MultiUnitEncoderLayer) -> list[MultiheadAttention]:
    batched = layer.self_attention
    found = []
    with torch.no_grad():
        for unit in range(batched.query_projection.weight.size(0)):
            tables = batched.relative_positions
            own = None
            if tables is not None:
                own = RelativePositions(
                    head_dim=tables.key_table.size(-1),
                    max_distance=tables.max_distance,
                    value_term=tables.value_term,
                    one_table=tables.value_table is None,
                )
                own.key_table.copy_(tables.key_table[unit])
            attention = MultiheadAttention(
                embed_dim=batched.query_projection.in_features,
                heads=batched.heads,
                dropout=batched.dropout.probability,
                bias=True,
                relative_positions=own,
            )
            for name in PROJECTIONS:
                getattr(attention, name).weight.copy_(getattr(batched, name).weight[unit].T)
                getattr(attention, name).bias.copy_(getattr(batched, name).bias[unit])
            found.append(attention)
    return found


def _feed_forwards(layer: MultiUnitEncoderLayer) -> tuple[list[nn.LayerNorm], list[FeedForward]]:
    batched = layer.feed_forward
    norms, nets = [], []
    with torch.no_grad():
        for unit in range(batched.first.weight.size(0)):
            width, hidden = batched.first.in_features, batched.first.out_features
            norm = nn.LayerNorm(width)
            norm.weight.copy_(batched.norm.weight[unit])
            norm.bias.copy_(batched.norm.bias[unit])
            net = FeedForward(
                embed_dim=width,
                hidden_dim=hidden,
                activation=batched.activation,
                activation_dropout=batched.activation_dropout.probability,
            )
            for name in ("first", "second"):
                getattr(net, name).weight.copy_(getattr(batched, name).weight[unit].T)
                getattr(net, name).bias.copy_(getattr(batched, name).bias[unit])
            norms.append(norm)
            nets.append(net)
    return norms, nets


class LoopStacks(UnitStacks):
    """As those of ``mute_transformer``, with the loop in the encoder's layers."""

    def encoder_layers(self) -> list[nn.Module]:
        return [LoopEncoderLayer(self._encoder_layer()) for _ in range(self.config.encoder_layers)]


@register_model("mute_transformer_loop", dataclass=MuteTransformerConfig)
class LoopTransformer(MuteTransformer):
    """``mute_transformer`` with a Python loop over the units."""

    @classmethod
    def build_model(cls, cfg: Any, task: FairseqTask) -> LoopTransformer:
        config = MuteTransformerConfig.complete(cfg)
        model = cls(*assemble(config, task, LoopStacks(config)))
        model.penalty_weight = config.penalty_weight
        return model
