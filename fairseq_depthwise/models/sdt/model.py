"""The deep pre-norm Transformer that shallow-to-deep training grows: blocks of layers, sparsely connected.

Source: "Shallow-to-Deep Training for Neural Machine Translation". The encoder's layers form blocks that read a learned
sum over all blocks below (``block_connection.py``), self-attention has relative positions on its keys, and the decoder
is the ordinary one. The task ``translation_layer_growth`` grows it. See ``docs/shallow_to_deep.md``.

Both stacks can have a connection over depth of another paper instead (``modules/depth_connections/``).
"""

from dataclasses import dataclass
from typing import Any

from fairseq.models import register_model
from torch import Tensor

from fairseq_compat import UserError
from fairseq_depthwise.models.base.config import distance, option, probability, register_presets
from fairseq_depthwise.models.base.model import AuxiliaryLoss, StackModel
from fairseq_depthwise.models.base.residual_stacks import ResidualConfig, ResidualStacks
from fairseq_depthwise.models.sdt.block_connection import BlockConnection
from fairseq_depthwise.models.sdt.presets import PRESETS
from fairseq_depthwise.models.sdt.similarity import inter_similarity_penalty
from fairseq_depthwise.modules.depth_connections import DEPTH_CONNECTIONS
from fairseq_depthwise.modules.stack import Connection, StackShape

#: Values of ``--encoder-connection`` and ``--decoder-connection``.
CONNECTIONS: dict[str, type[Connection]] = {
    "residual": Connection,
    "blocks": BlockConnection,
    **DEPTH_CONNECTIONS,
}


@dataclass
class SDTTransformerConfig(ResidualConfig):
    """Options of ``sdt_transformer``; the paper's dropout is 0.1 everywhere."""

    attention_dropout: float = probability(0.1, "dropout of attention weights")
    activation_dropout: float = probability(0.1, "dropout inside the feed-forward nets")
    # Connections over depth: the paper's blocks, or those of another paper (docs/connections.md).
    encoder_block_size: int = option(
        6, "layers of each connected block p; 1 = dense connections, 0 = no connections", at_least=0, addable=True
    )
    encoder_connection: str = option("blocks", "what connects the encoder's layers", one_of=tuple(CONNECTIONS))
    decoder_connection: str = option("residual", "what connects the decoder's layers", one_of=tuple(CONNECTIONS))
    connection_unit: str = option(
        "layer", "what average, attention and hyper connect: layers, or their sub-layers", one_of=("layer", "sub-layer")
    )
    norm_scaling: bool = option(False, "divide what the layer norms of layer l give by sqrt(l)")
    hyper_streams: int = option(4, "residual streams of the connection hyper", at_least=1)
    hyper_manifold: str = option(
        "none",
        "doubly stochastic matrices that mix these streams; without a value: sinkhorn",
        one_of=("none", "sinkhorn", "permutations", "identity"),
        bare="sinkhorn",
    )
    # Relative positions on keys, as in the paper.
    max_relative_positions: int = distance(8)
    # The regularizer of Section 6.3, an ablation.
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
            divisors = [str(size) for size in range(1, layers + 1) if layers % size == 0]
            raise UserError(
                f"--encoder-layers {layers} is not a multiple of --encoder-block-size {block}; block sizes that fit "
                f"are {', '.join(divisors)}, or 0 for no connections"
            )
        if block and not CONNECTIONS[self.encoder_connection].has_blocks:
            raise UserError(
                f"--encoder-connection {self.encoder_connection} has no blocks; it needs --encoder-block-size 0, not "
                f"{block}"
            )
        if self.decoder_connection == "blocks":
            raise UserError("--decoder-connection blocks: only the encoder can have blocks; choose another")


class BlockStacks(ResidualStacks):
    """Residual stacks with the connections that the options name."""

    config: SDTTransformerConfig

    def __init__(self, config: SDTTransformerConfig) -> None:
        super().__init__(config)
        self.norm_scaling = config.norm_scaling
        # Connections that pass on more than the stream have layers of their own.
        self.encoder_layer: Any = self._connection_class("encoder").encoder_layer or self.encoder_layer
        self.decoder_layer: Any = self._connection_class("decoder").decoder_layer or self.decoder_layer

    def connect(self, side: str) -> Connection:
        config = self.config
        connection_class = self._connection_class(side)
        # Where sub-layers are connected, they count as layers, and a block has proportionally more of them.
        sublayers = 1
        if connection_class.has_sublayers and config.connection_unit == "sub-layer":
            layer_class = self.encoder_layer if side == "encoder" else self.decoder_layer
            sublayers = len(layer_class.branch_ends)
        shape = StackShape(
            embed_dim=self.width,
            layers=sublayers * self.depth(side),
            block_size=sublayers * self._block_size(side),
            streams=config.hyper_streams,
            manifold=config.hyper_manifold,
            sublayers=sublayers,
        )
        return connection_class(shape)

    def _block_size(self, side: str) -> int:
        return self.config.encoder_block_size if side == "encoder" else 0

    def _connection_class(self, side: str) -> type[Connection]:
        name = self.config.encoder_connection if side == "encoder" else self.config.decoder_connection
        without_blocks = name == "blocks" and not self._block_size(side)
        return CONNECTIONS["residual" if without_blocks else name]


@register_model("sdt_transformer", dataclass=SDTTransformerConfig)
class SDTTransformer(StackModel):
    """Pre-norm encoder with block connections, pre-norm decoder."""

    options = SDTTransformerConfig
    stacks = BlockStacks

    @property
    def reads_encoder_states(self) -> bool:
        return bool(self.config.inter_similarity_weight)

    def auxiliary_losses(self, encoder_out: dict[str, list[Tensor]]) -> dict[str, AuxiliaryLoss]:
        """Return the regularizer of "Reg-6L" (Section 6.3), unless its weight is 0."""
        weight = self.config.inter_similarity_weight
        if not weight:
            return {}
        _, *layers = encoder_out["encoder_states"]  # the first is the embedding
        penalty = inter_similarity_penalty(layers, encoder_out["encoder_padding_mask"][0])
        return {"inter_similarity_penalty": AuxiliaryLoss(penalty, weight, "--inter-similarity-weight")}


register_presets("sdt_transformer", PRESETS)
