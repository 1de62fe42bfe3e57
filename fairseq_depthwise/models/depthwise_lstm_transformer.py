"""The Transformer whose layers are connected by a depth-wise LSTM.

Source: "Rewiring the Transformer with Depth-Wise LSTMs" (the later version of "Multi-Layer Transformers with
Depth-Wise LSTMs"). The default is the papers' base model with a two-layer GLU hidden net, gates shared by the layers
of a stack, and the decoder's two attentions merged by addition. Where the paper is silent: ``docs/depthwise_lstm.md``.
"""

from dataclasses import dataclass
from typing import Any

from fairseq.models import register_model, register_model_architecture
from fairseq.tasks import FairseqTask
from torch import nn

from fairseq_compat import UserError
from fairseq_depthwise.models.config import EncoderDecoderConfig, option
from fairseq_depthwise.models.encoder_decoder import StackDecoder, StackEncoder, StackModel, build_embeddings
from fairseq_depthwise.modules.attention import MultiheadAttention
from fairseq_depthwise.modules.connections import DepthwiseConnection
from fairseq_depthwise.modules.depthwise_cell import DepthwiseLSTMCell, Gates, HiddenNet
from fairseq_depthwise.modules.depthwise_layers import DepthwiseDecoderLayer, DepthwiseEncoderLayer


@dataclass
class DepthwiseLSTMTransformerConfig(EncoderDecoderConfig):
    """Options of ``depthwise_lstm_transformer``."""

    depthwise_hidden_dim: int = option(2048, "width H of the cell's hidden net before the GLU halves it", at_least=2)

    def check(self) -> None:
        super().check()
        if self.depthwise_hidden_dim % 2:
            raise UserError(
                f"--depthwise-hidden-dim {self.depthwise_hidden_dim} is odd; the GLU halves it, so give an even number"
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
        source, target = task.source_dictionary, task.target_dictionary
        source_embedding, target_embedding = build_embeddings(config, source, target)
        encoder = StackEncoder(
            dictionary=source,
            embedding=source_embedding,
            layers=_encoder_layers(config),
            connection=DepthwiseConnection(embed_dim=config.encoder_embed_dim),
            max_positions=config.max_source_positions,
            checkpoint_activations=config.checkpoint_activations,
        )
        decoder = StackDecoder(
            dictionary=target,
            embedding=target_embedding,
            layers=_decoder_layers(config),
            connection=DepthwiseConnection(embed_dim=config.decoder_embed_dim),
            share_embedding=config.share_decoder_input_output_embed or config.share_all_embeddings,
            max_positions=config.max_target_positions,
            checkpoint_activations=config.checkpoint_activations,
        )
        return cls(encoder, decoder)


def _encoder_layers(config: DepthwiseLSTMTransformerConfig) -> list[nn.Module]:
    width = config.encoder_embed_dim
    gates = Gates(input_dim=2 * width, embed_dim=width)  # one set for the stack
    return [
        DepthwiseEncoderLayer(
            self_attention=_attention(config, width, config.encoder_attention_heads),
            cell=_cell(config, width, gates),
            input_norm=_norm_above_first(index, width),
            dropout=config.dropout,
        )
        for index in range(config.encoder_layers)
    ]


def _decoder_layers(config: DepthwiseLSTMTransformerConfig) -> list[nn.Module]:
    width, heads = config.decoder_embed_dim, config.decoder_attention_heads
    gates = Gates(input_dim=2 * width, embed_dim=width)
    return [
        DepthwiseDecoderLayer(
            self_attention=_attention(config, width, heads),
            cross_attention=_attention(config, width, heads, attend_encoder=True),
            cell=_cell(config, width, gates),
            input_norm=_norm_above_first(index, width),
            query_norm=_norm_above_first(index, width),
            dropout=config.dropout,
        )
        for index in range(config.decoder_layers)
    ]


def _cell(config: DepthwiseLSTMTransformerConfig, width: int, gates: Gates) -> DepthwiseLSTMCell:
    return DepthwiseLSTMCell(
        gates=gates,
        hidden_net=HiddenNet(
            input_dim=2 * width,
            embed_dim=width,
            hidden_dim=config.depthwise_hidden_dim,
            dropout=config.dropout,
            activation_dropout=config.activation_dropout,
        ),
    )


def _attention(
    config: DepthwiseLSTMTransformerConfig, width: int, heads: int, *, attend_encoder: bool = False
) -> MultiheadAttention:
    return MultiheadAttention(
        embed_dim=width,
        heads=heads,
        dropout=config.attention_dropout,
        bias=config.attention_bias,
        attend_encoder=attend_encoder,
    )


def _norm_above_first(index: int, width: int) -> nn.LayerNorm | None:
    """The published parameter counts have no norm before the attentions of a stack's first layer."""
    return None if index == 0 else nn.LayerNorm(width)


def _both_sides(*, embed_dim: int, attention_heads: int) -> dict[str, int]:
    sizes = {"embed_dim": embed_dim, "attention_heads": attention_heads}
    return {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sizes.items()}


_BIG = {**_both_sides(embed_dim=1024, attention_heads=16), "depthwise_hidden_dim": 4096}

#: Preset -> the defaults it sets. Each stays overridable on the command line and is saved in the checkpoint.
PRESETS: dict[str, dict[str, Any]] = {
    "iwslt_de_en": {**_both_sides(embed_dim=512, attention_heads=4), "depthwise_hidden_dim": 1024},
    "wmt_en_de": {},
    "wmt_en_de_big": {**_BIG, "dropout": 0.3},
    "wmt_en_fr_big": _BIG,
}


def _register_preset(name: str, defaults: dict[str, Any]) -> None:
    def set_defaults(args: Any) -> None:
        for name_of_option, value in defaults.items():
            if getattr(args, name_of_option, None) is None:
                setattr(args, name_of_option, value)

    register_model_architecture("depthwise_lstm_transformer", f"depthwise_lstm_transformer_{name}")(set_defaults)


for _name, _defaults in PRESETS.items():
    _register_preset(_name, _defaults)
