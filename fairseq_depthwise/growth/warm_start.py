"""Starts a new run from a trained, perhaps shallower model (``--growth-from``)."""

from __future__ import annotations

import logging
from dataclasses import fields
from typing import TYPE_CHECKING

from torch import nn

from fairseq_compat import UserError
from fairseq_compat.checkpoints import require_one_value
from fairseq_depthwise.growth.layer_sources import block_size, layer_sources
from fairseq_depthwise.growth.parameter_map import map_parameters, zero_new_branches
from fairseq_depthwise.models.base.config import EncoderDecoderConfig
from fairseq_depthwise.models.base.model import StackModel

if TYPE_CHECKING:
    from fairseq_depthwise.checkpoints.checkpoint import Checkpoint

logger = logging.getLogger(__name__)


def start_from(
    checkpoint: Checkpoint,
    model: StackModel,
    options: EncoderDecoderConfig,
    *,
    sides: tuple[str, ...],
    strategy: str,
    init: str = "copy",
) -> tuple[str, ...]:
    """Copy the parameters of a checkpoint into a new model, and grow the ``sides`` to the model's depth.

    Returns:
        the names of the parameters that growth added.

    Raises:
        UserError: the models differ in more than their depth.
    """
    trained = checkpoint.converted()
    _require_same_options(trained, type(model), options, sides)
    depths = {side: (trained.depth(side), len(getattr(model, side).layers)) for side in sides}
    try:
        sources = {}
        for side, (present, wanted) in depths.items():
            if present != wanted:
                sources[side] = layer_sources(present, wanted, strategy, block_size(options, side), init)
        # All that was trained must find a place; the rest is new and stays as built.
        parameter_map = map_parameters(model, trained.parameters, sources, init)
        unused = trained.parameters.keys() - set(parameter_map.sources.values())
        if unused:
            raise UserError(f"this model has no place for its {min(unused)}; give the same options")
        if init == "zero":
            zero_new_branches(model, sources)
        grown = parameter_map.apply(trained.parameters)
        # What has no source stays in the model as it is, initialized by the training's seed; fairseq's load_state_dict
        # would also look for layers to prune.
        copied = {name: grown[name] for name, source in parameter_map.sources.items() if source is not None}
        nn.Module.load_state_dict(model, copied, strict=False)
        require_one_value(model, trained.parameters)
    except UserError as error:
        raise UserError(f"{trained.name}: {error}") from None
    except RuntimeError as error:  # a size differs, although all options are the same
        raise UserError(f"{trained.name} was trained with dictionaries of other sizes; give the same") from error

    logger.info(
        "started from %s, %d updates, %s%s",
        trained.path,
        trained.updates,
        ", ".join(f"{side} of {present} layers" for side, (present, _) in depths.items()),
        "".join(f"; {remark}" for remark in trained.remarks),
    )
    if parameter_map.built:
        logger.info("new, with first values as in any new model: %s", ", ".join(sorted(parameter_map.built)))
    return parameter_map.new if sources else ()


def _require_same_options(
    trained: Checkpoint, family: type[StackModel], wanted: EncoderDecoderConfig, sides: tuple[str, ...]
) -> None:
    """Raise :class:`UserError` with all differences unless a model with these options can start from ``trained``."""
    if trained.family is not family:
        trained_family = getattr(trained.family, "__name__", trained.architecture)
        raise UserError(
            f"{trained.name} holds a {trained_family}, and --arch is a {family.__name__}; both must be of one family, "
            "and fairseq's transformer is an sdt_transformer"
        )
    config = trained.config
    free = {f"{side}_layers" for side in sides} | {"_name"}
    if config.share_all_embeddings and wanted.share_all_embeddings:
        free.add("share_decoder_input_output_embed")  # is implied, but fairseq's transformer records both
    if not config.max_relative_positions:
        free.add("relative_position_terms")  # has no effect
    differences = []
    for field in fields(wanted):
        before, now = getattr(config, field.name), getattr(wanted, field.name)
        changes_parameters = field.metadata.get("changes_parameters", True) and field.name not in free
        # Some parts may be added to a model that was trained without them.
        is_added = field.metadata.get("addable") and not before
        if changes_parameters and before != now and not is_added:
            differences.append(f"--{field.name.replace('_', '-')} is {before} there and {now} here")
    if differences:
        raise UserError(f"{trained.name}: {'; '.join(differences)}; a model is grown with its own options")
