"""A trained model as it is in a checkpoint: its family, its options, a value for each parameter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import Any

from fairseq.models import ARCH_MODEL_NAME_REGISTRY, MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
from fairseq.models.transformer import TransformerModel
from torch import Tensor

from fairseq_compat import UserError
from fairseq_compat.finite import require_finite
from fairseq_depthwise.checkpoints.checkpoint import Checkpoint
from fairseq_depthwise.checkpoints.sizes import build_with_words, family_of
from fairseq_depthwise.checkpoints.stock_transformer import names_of_sdt, options_of_sdt
from fairseq_depthwise.growth.parameter_sources import Growth
from fairseq_depthwise.models.base.config import EncoderDecoderConfig
from fairseq_depthwise.models.base.model import StackModel


@dataclass(frozen=True)
class TrainedModel:
    """What a checkpoint holds of a model.

    Attributes:
        path: the file.
        family: class of the model; for a stock fairseq ``transformer`` the family whose names it was given.
        options: the family's options as they were in training, completed with defaults.
        values: name -> value of each parameter.
        updates: updates it was trained for.
        remarks: what was renamed or left out, for the log.
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

    Args:
        path: checkpoint; its tensors stay in the file until they are used.
        option: the command line's option that named the file, for errors.

    Raises:
        UserError: the file is missing, damaged, not a checkpoint, or its model is none of these or has diverged.
    """
    checkpoint = Checkpoint(path, f"{option} {path}".strip())
    named, arch, given, values = checkpoint.named, checkpoint.architecture, checkpoint.options(), checkpoint.parameters
    updates = checkpoint.updates
    family = family_of(arch)
    require_finite(values.items(), named)
    if family is not None and issubclass(family, StackModel):
        config = options_class(arch).complete(SimpleNamespace(**given))
        return TrainedModel(path, family, config, values, updates)
    if family is TransformerModel:
        family = MODEL_REGISTRY["sdt_transformer"]
        config = options_class("sdt_transformer").complete(SimpleNamespace(**options_of_sdt(given, named)))
        values, remarks = names_of_sdt(values, named)
        return TrainedModel(path, family, config, values, updates, remarks)
    # The families; not what somebody's own program registered as a variant of one.
    ours = ", ".join(sorted(name for name, model in MODEL_REGISTRY.items() if StackModel in model.__bases__))
    raise UserError(f"{named} holds a model of the architecture {arch}; it must be one of {ours}, or transformer")


def options_class(arch: str | None) -> Any:
    """Return the dataclass of an architecture's options, of a preset too; None where it has none."""
    return MODEL_DATACLASS_REGISTRY.get(ARCH_MODEL_NAME_REGISTRY.get(arch, arch))


def build_like(trained: TrainedModel, changes: Mapping[str, Any] | None = None) -> StackModel:
    """Build a new model with the same options, except for ``changes``, and dictionaries of the tables' sizes."""
    options = {**vars(trained.options), "encoder_embed_path": None, "decoder_embed_path": None, **(changes or {})}
    tables = [f"{side}.embedding.tokens.weight" for side in ("encoder", "decoder")]
    if missing := [table for table in tables if table not in trained.values]:
        raise UserError(f"{trained.path} has no parameter {missing[0]}")
    sizes = [trained.values[table].size(0) for table in tables]
    model: StackModel = build_with_words(trained.family, options, *sizes)
    return model


def require_same_kind(
    trained: TrainedModel, family: type[StackModel], wanted: EncoderDecoderConfig, sides: tuple[str, ...]
) -> None:
    """Raise :class:`UserError` naming what differs, unless a model with these options can start from ``trained``.

    Args:
        trained: the model to start from.
        family: the model's class.
        wanted: the model's options.
        sides: stacks whose depth may differ.
    """
    if trained.family is not family:
        raise UserError(
            f"--growth-from {trained.path} holds a {_name_of(trained.family)}, and --arch is of the family "
            f"{_name_of(family)}; both must be of one family"
        )
    free = {f"{side}_layers" for side in sides} | {"_name"}
    if trained.options.share_all_embeddings and wanted.share_all_embeddings:
        free.add("share_decoder_input_output_embed")  # is part of it; fairseq's transformer says both
    if not trained.options.max_relative_positions:
        free.add("relative_position_terms")  # of nothing
    differing = []
    for field in fields(wanted):
        before, now = getattr(trained.options, field.name), getattr(wanted, field.name)
        changes = field.metadata.get("changes_parameters", True) and field.name not in free
        added = field.metadata.get("addable") and not before
        if changes and before != now and not added:
            differing.append(f"--{field.name.replace('_', '-')} is {before} there and {now} here")
    if differing:
        raise UserError(f"--growth-from {trained.path}: {'; '.join(differing)}; a model is grown with its own options")


def require_same_shapes(trained: TrainedModel, own: Mapping[str, Tensor], growth: Growth) -> None:
    """Raise :class:`UserError` naming the first tensor of ``trained`` that does not fit where it is to be copied."""
    for name, source in growth.items():
        if source is not None and growth.part(name, trained.values[source]).shape != own[name].shape:
            raise UserError(
                f"--growth-from {trained.path}: {source} is {_shape(trained.values[source])} there, and {name} is "
                f"{_shape(own[name])} here; width and dictionary must be the same"
            )
    used = set(growth.values())
    unused = [name for name in trained.values if name not in used]
    if unused:
        raise UserError(
            f"--growth-from {trained.path} has {unused[0]}, which this model has no place for; give the same options"
        )


def _name_of(family: type[StackModel]) -> str:
    return next(name for name, model in MODEL_REGISTRY.items() if model is family)


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape))
