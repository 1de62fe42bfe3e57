"""The deep pre-norm Transformer that shallow-to-deep training grows: blocks of layers, sparsely connected.

Source: "Shallow-to-Deep Training for Neural Machine Translation". The encoder's layers form blocks that read a learned
sum over all blocks below (``modules/connections.py``), self-attention has relative positions on its keys, and the
decoder is the ordinary one. Growing it: the task ``translation_layer_growth``. See ``docs/shallow_to_deep.md``.
"""

from dataclasses import dataclass
from typing import Any

from fairseq.models import register_model
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from fairseq_compat import UserError
from fairseq_depthwise.models.assembly import assemble, build_attention
from fairseq_depthwise.models.auxiliary_loss import AuxiliaryLoss
from fairseq_depthwise.models.config import EncoderDecoderConfig, option
from fairseq_depthwise.models.presets import register_presets
from fairseq_depthwise.models.sdt_presets import PRESETS
from fairseq_depthwise.models.stack_model import StackModel
from fairseq_depthwise.modules.attention import MultiheadAttention
from fairseq_depthwise.modules.connections import BlockConnection, Connection
from fairseq_depthwise.modules.feed_forward import ACTIVATIONS, FeedForward
from fairseq_depthwise.modules.residual_layers import ResidualDecoderLayer, ResidualEncoderLayer
from fairseq_depthwise.modules.similarity import inter_similarity_penalty


@dataclass
class SDTTransformerConfig(EncoderDecoderConfig):
    """Options of ``sdt_transformer``; the paper's dropout is 0.1 everywhere."""

    encoder_ffn_embed_dim: int = option(2048, "width inside the encoder's feed-forward nets", at_least=1)
    decoder_ffn_embed_dim: int = option(2048, "width inside the decoder's feed-forward nets", at_least=1)
    activation_fn: str = option("relu", "activation of the feed-forward nets", one_of=ACTIVATIONS)
    attention_dropout: float = option(0.1, "dropout of attention weights", at_least=0, below=1)
    activation_dropout: float = option(0.1, "dropout inside the feed-forward nets", at_least=0, below=1)
    encoder_block_size: int = option(
        6, "layers of each connected block p; 1 = dense connections, 0 = no connections", at_least=0
    )
    max_relative_positions: int = option(
        8, "relative positions in every self-attention up to this distance; 0 = none", at_least=0
    )
    inter_similarity_weight: float = option(
        0.0,
        "weight of the penalty on representations that differ from their sentence's mean; needs --criterion "
        "label_smoothed_cross_entropy_with_auxiliary",
        at_least=0,
    )

    def check(self) -> None:
        super().check()
        layers, block = self.encoder_layers, self.encoder_block_size
        if block and layers % block:
            possible = ", ".join(str(number) for number in range(1, layers + 1) if layers % number == 0)
            raise UserError(
                f"--encoder-layers {layers} is not a multiple of --encoder-block-size {block}; block sizes that fit "
                f"are {possible}, or 0 for no connections"
            )


@register_model("sdt_transformer", dataclass=SDTTransformerConfig)
class SDTTransformer(StackModel):
    """Pre-norm encoder with block connections, pre-norm decoder."""

    #: Weight of the penalty on low inter-similarity.
    inter_similarity_weight = 0.0

    @classmethod
    def build_model(cls, cfg: Any, task: FairseqTask) -> "SDTTransformer":
        """Build the model for a task's dictionaries.

        Raises:
            UserError: an option is out of range or contradicts another.
        """
        config = SDTTransformerConfig.complete(cfg)
        model = cls(*assemble(config, task, ResidualStacks(config)))
        model.inter_similarity_weight = config.inter_similarity_weight
        model.reads_encoder_states = config.inter_similarity_weight > 0
        return model

    def auxiliary_losses(self, encoder_out: dict[str, list[Tensor]]) -> dict[str, AuxiliaryLoss]:
        """The regulariser of "Reg-6L" (Section 6.3), where it has a weight."""
        if not self.inter_similarity_weight:
            return {}
        layers = encoder_out["encoder_states"][1:]
        penalty = inter_similarity_penalty(layers, encoder_out["encoder_padding_mask"][0])
        loss = AuxiliaryLoss(penalty, self.inter_similarity_weight, "--inter-similarity-weight")
        return {"inter_similarity_penalty": loss}


class ResidualStacks:
    """Builds the layers and connections of both stacks.

    Args:
        config: checked options.
    """

    def __init__(self, config: SDTTransformerConfig) -> None:
        self.config = config
        self.width = config.encoder_embed_dim

    def encoder_layers(self) -> list[nn.Module]:
        """First to last."""
        config = self.config
        return [
            ResidualEncoderLayer(
                embed_dim=self.width,
                self_attention=self._attention(config.encoder_attention_heads),
                feed_forward=self._feed_forward(config.encoder_ffn_embed_dim),
                dropout=config.dropout,
            )
            for _ in range(config.encoder_layers)
        ]

    def decoder_layers(self) -> list[nn.Module]:
        """First to last."""
        config = self.config
        return [
            ResidualDecoderLayer(
                embed_dim=self.width,
                self_attention=self._attention(config.decoder_attention_heads),
                cross_attention=self._attention(config.decoder_attention_heads, attend_encoder=True),
                feed_forward=self._feed_forward(config.decoder_ffn_embed_dim),
                dropout=config.dropout,
            )
            for _ in range(config.decoder_layers)
        ]

    def encoder_connection(self) -> Connection:
        config = self.config
        if not config.encoder_block_size:
            return Connection(embed_dim=self.width)
        return BlockConnection(embed_dim=self.width, layers=config.encoder_layers, block_size=config.encoder_block_size)

    def decoder_connection(self) -> Connection:
        return Connection(embed_dim=self.width)

    def _attention(self, heads: int, *, attend_encoder: bool = False) -> MultiheadAttention:
        attention = build_attention(self.config, heads=heads, bias=True, attend_encoder=attend_encoder)
        # As the authors' program: queries, keys and values as if the three maps were one, and no bias at first.
        for projection in (attention.query_projection, attention.key_projection, attention.value_projection):
            nn.init.xavier_uniform_(projection.weight, gain=2**-0.5)
            nn.init.zeros_(projection.bias)
        nn.init.xavier_uniform_(attention.output_projection.weight)
        nn.init.zeros_(attention.output_projection.bias)
        return attention

    def _feed_forward(self, hidden_dim: int) -> FeedForward:
        return FeedForward(
            embed_dim=self.width,
            hidden_dim=hidden_dim,
            activation=self.config.activation_fn,
            activation_dropout=self.config.activation_dropout,
        )


register_presets("sdt_transformer", PRESETS)
