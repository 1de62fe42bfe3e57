"""A trained model as it is in a checkpoint: its family, its options, a value for each parameter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from fairseq.models import MODEL_REGISTRY
from fairseq.models.transformer import TransformerModel
from torch import Tensor

from fairseq_compat import UserError, provenance
from fairseq_compat.checkpoints import require_finite
from fairseq_depthwise.checkpoints.checkpoint import Checkpoint
from fairseq_depthwise.checkpoints.sizes import build_with_words, family_of
from fairseq_depthwise.checkpoints.stock_transformer import names_of_sdt, options_of_sdt
from fairseq_depthwise.models.base.config import EncoderDecoderConfig
from fairseq_depthwise.models.base.model import StackModel
from fairseq_depthwise.modules.stack import SIDES


@dataclass(frozen=True)
class TrainedModel:
    """What a checkpoint holds of a model: family, options completed with defaults, and a value for each parameter.

    ``remarks``: what of fairseq's own ``transformer``, whose family is ``sdt_transformer``, was renamed or left out.
    """

    path: str
    family: type[StackModel]
    options: EncoderDecoderConfig
    values: Mapping[str, Tensor]
    updates: int
    remarks: tuple[str, ...] = ()

    def depth(self, side: str) -> int:
        """Return the number of layers of the encoder or the decoder."""
        layers: int = getattr(self.options, f"{side}_layers")
        return layers


def read_trained_model(path: str, option: str = "") -> TrainedModel:
    """Read a model of one of our families, or of fairseq's own ``transformer`` with layer norms before sub-layers.

    ``option`` named the file, for errors. Tensors stay in the file until they are used.
    """
    checkpoint = Checkpoint(path, f"{option} {path}".strip())
    named, arch, given, values = checkpoint.named, checkpoint.architecture, checkpoint.options(), checkpoint.parameters
    family = family_of(arch)
    remarks: tuple[str, ...] = ()
    require_finite(values.items(), named)
    if family is TransformerModel:
        arch = "sdt_transformer"
        family, given = MODEL_REGISTRY[arch], options_of_sdt(given, named)
        values, remarks = names_of_sdt(values, named)
    elif family is None or not issubclass(family, StackModel):
        raise UserError(
            f"{named} holds a model of the architecture {arch}; it must be one of this plugin's, such as "
            "sdt_transformer, or fairseq's transformer"
        )
    config = provenance.options_class(arch).complete(SimpleNamespace(**given))
    return TrainedModel(path, family, config, values, checkpoint.updates, remarks)


def block_size(options: Any, side: str) -> int:
    """Return how many layers a connected block of a side has, by a model's options; 0 where there are no blocks."""
    return (getattr(options, "encoder_block_size", 0) or 0) if side == "encoder" else 0


def build_like(trained: TrainedModel, changes: Mapping[str, Any] | None = None) -> StackModel:
    """Build a new model with the same options, except for ``changes``, and dictionaries of the tables' sizes."""
    options = {**vars(trained.options), "encoder_embed_path": None, "decoder_embed_path": None, **(changes or {})}
    sizes = [trained.values[f"{side}.embedding.tokens.weight"].size(0) for side in SIDES]
    model: StackModel = build_with_words(trained.family, options, *sizes)
    return model
