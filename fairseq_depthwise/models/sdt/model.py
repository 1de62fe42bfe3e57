"""The deep pre-norm Transformer that shallow-to-deep training grows: blocks of layers, sparsely connected.

Source: "Shallow-to-Deep Training for Neural Machine Translation". The encoder's layers form blocks that read a learned
sum over all blocks below (``modules/connections/blocks.py``), self-attention has relative positions on its keys, and
the decoder is the ordinary one. Growing it: the task ``translation_layer_growth``. See ``docs/shallow_to_deep.md``.
"""

from dataclasses import dataclass
from typing import Any

from fairseq.models import register_model
from fairseq.tasks import FairseqTask
from torch import Tensor

from fairseq_compat import UserError
from fairseq_depthwise.models.base.assembly import assemble
from fairseq_depthwise.models.base.config import distance, option, probability, register_presets
from fairseq_depthwise.models.base.model import AuxiliaryLoss, StackModel
from fairseq_depthwise.models.base.residual_stacks import ResidualConfig, ResidualStacks
from fairseq_depthwise.models.sdt.presets import PRESETS
from fairseq_depthwise.models.sdt.similarity import inter_similarity_penalty
from fairseq_depthwise.modules.connections import CONNECTIONS
from fairseq_depthwise.modules.connections.shape import StackShape
from fairseq_depthwise.modules.stack import Connection


@dataclass
class SDTTransformerConfig(ResidualConfig):
    """Options of ``sdt_transformer``; the paper's dropout is 0.1 everywhere."""

    attention_dropout: float = probability(0.1, "dropout of attention weights")
    activation_dropout: float = probability(0.1, "dropout inside the feed-forward nets")
    encoder_block_size: int = option(
        6, "layers of each connected block p; 1 = dense connections, 0 = no connections", at_least=0, addable=True
    )
    encoder_connection: str = option("blocks", "what connects the encoder's layers", one_of=tuple(CONNECTIONS))
    decoder_connection: str = option("residual", "what connects the decoder's layers", one_of=tuple(CONNECTIONS))
    norm_scaling: bool = option(False, "divide what the layer norms of layer l give by sqrt(l)")
    hyper_streams: int = option(4, "residual streams of the connection hyper", at_least=1)
    hyper_manifold: bool = option(False, "mix these streams by doubly stochastic matrices")
    max_relative_positions: int = distance(8)
    inter_similarity_weight: float = option(
        0.0,
        "weight of the penalty on representations that differ from their sentence's mean; needs --criterion "
        "label_smoothed_cross_entropy_with_auxiliary",
        at_least=0,
        changes_parameters=False,
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
        if block and not CONNECTIONS[self.encoder_connection].has_blocks:
            raise UserError(
                f"--encoder-connection {self.encoder_connection} has no blocks; it needs --encoder-block-size 0, not "
                f"{block}"
            )
        if self.decoder_connection == "blocks":
            raise UserError(
                "--decoder-connection blocks: the paper connects blocks of the encoder only; choose another"
            )


@register_model("sdt_transformer", dataclass=SDTTransformerConfig)
class SDTTransformer(StackModel):
    """Pre-norm encoder with block connections, pre-norm decoder."""

    #: Weight of the penalty on low inter-similarity.
    inter_similarity_weight = 0.0

    @classmethod
    def build_model(cls, cfg: Any, task: FairseqTask) -> "SDTTransformer":
        """Build the model for a task's dictionaries; raise UserError for options that are wrong."""
        config = SDTTransformerConfig.complete(cfg)
        model = cls(*assemble(config, task, BlockStacks(config)))
        model.inter_similarity_weight = config.inter_similarity_weight
        model.reads_encoder_states = config.inter_similarity_weight > 0
        return model

    def auxiliary_losses(self, encoder_out: dict[str, list[Tensor]]) -> dict[str, AuxiliaryLoss]:
        """Return the regularizer of "Reg-6L" (Section 6.3), where it has a weight."""
        if not self.inter_similarity_weight:
            return {}
        layers = encoder_out["encoder_states"][1:]
        penalty = inter_similarity_penalty(layers, encoder_out["encoder_padding_mask"][0])
        loss = AuxiliaryLoss(penalty, self.inter_similarity_weight, "--inter-similarity-weight")
        return {"inter_similarity_penalty": loss}


class BlockStacks(ResidualStacks):
    """Residual stacks with the connections that the options name."""

    config: SDTTransformerConfig

    def __init__(self, config: SDTTransformerConfig) -> None:
        super().__init__(config)
        self.norm_scaling = config.norm_scaling
        self.encoder_layer = CONNECTIONS[config.encoder_connection].encoder_layer
        self.decoder_layer = CONNECTIONS[config.decoder_connection].decoder_layer

    def encoder_connection(self) -> Connection:
        name, block_size = self.config.encoder_connection, self.config.encoder_block_size
        if name == "blocks" and not block_size:
            name = "residual"
        return CONNECTIONS[name](self._shape(self.config.encoder_layers, block_size))

    def decoder_connection(self) -> Connection:
        return CONNECTIONS[self.config.decoder_connection](self._shape(self.config.decoder_layers))

    def _shape(self, layers: int, block_size: int = 0) -> StackShape:
        return StackShape(self.width, layers, block_size, self.config.hyper_streams, self.config.hyper_manifold)


register_presets("sdt_transformer", PRESETS)
