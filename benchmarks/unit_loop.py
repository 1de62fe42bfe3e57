"""The Multi-Unit Transformer with its units one after the other: what the batched computation is compared with.

Each unit is an ordinary attention and an ordinary feed-forward net, called in a Python loop as the authors' program
does. Architecture ``mute_transformer_loop``, with the options of ``mute_transformer`` but for shared parts.
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


class LoopEncoderLayer(EncoderLayer):
    """A layer that computes what another one does, with the same parameters to begin with.

    Args:
        layer: the batched layer; norm, inputs, order and unit weights are its own, the units are built anew.
    """

    def __init__(self, layer: MultiUnitEncoderLayer) -> None:
        super().__init__()
        self.self_attention_norm = layer.self_attention_norm
        self.inputs = layer.inputs
        self.order = layer.order
        self.unit_weights = layer.unit_weights
        self.dropout = layer.dropout
        units = range(len(layer.unit_weights))
        with torch.no_grad():
            self.attentions = nn.ModuleList(_attention(layer.self_attention, unit) for unit in units)
            self.norms = nn.ModuleList(_norm(layer.feed_forward.norm, unit) for unit in units)
            self.nets = nn.ModuleList(_feed_forward(layer.feed_forward, unit) for unit in units)

    @classmethod
    def prepare(
        cls, layers: Sequence[Any], embedded: Tensor, padding: Tensor | None
    ) -> list[tuple[Tensor | None, ...]]:
        length, batch = embedded.size(0), embedded.size(1)
        return [(layer.inputs.draw(length, batch, padding, embedded.device),) for layer in layers]

    def forward(self, stream: Tensor, padding: Tensor | None, rows: Tensor | None = None) -> Tensor:
        inputs = self.inputs(self.self_attention_norm(stream), rows)
        coefficients = self.unit_weights if self.order is None else self.order(self.unit_weights)
        outputs = []
        for unit, attention in enumerate(self.attentions):
            own = inputs[unit % len(inputs)]
            attended, _ = attention(own, own, padding=padding)
            residual = stream + self.dropout(attended)
            outputs.append(residual + self.dropout(self.nets[unit](self.norms[unit](residual))))
        return torch.stack([output * weight for output, weight in zip(outputs, coefficients, strict=True)]).sum(dim=0)


def _copy(batched: Any, own: Any, unit: int, *names: str) -> None:
    """Copy a unit's weights and biases."""
    for name in names:
        getattr(own, name).weight.copy_(getattr(batched, name).weight[unit].T)
        getattr(own, name).bias.copy_(getattr(batched, name).bias[unit])


def _attention(batched: Any, unit: int) -> MultiheadAttention:
    tables, own = batched.relative_positions, None
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
    _copy(batched, attention, unit, "query_projection", "key_projection", "value_projection", "output_projection")
    return attention


def _norm(batched: Any, unit: int) -> nn.LayerNorm:
    norm = nn.LayerNorm(batched.weight.size(-1))
    norm.weight.copy_(batched.weight[unit])
    norm.bias.copy_(batched.bias[unit])
    return norm


def _feed_forward(batched: Any, unit: int) -> FeedForward:
    net = FeedForward(
        embed_dim=batched.first.in_features,
        hidden_dim=batched.first.out_features,
        activation=batched.activation,
        activation_dropout=batched.activation_dropout.probability,
    )
    _copy(batched, net, unit, "first", "second")
    return net


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
