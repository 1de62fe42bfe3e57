"""Starting a new run from a trained, perhaps shallower, model (``--growth-from``)."""

from __future__ import annotations

import logging
from dataclasses import fields

from torch import nn

from fairseq_compat import UserError
from fairseq_compat.checkpoints import require_one_value
from fairseq_depthwise.growth.layer_sources import layer_sources
from fairseq_depthwise.growth.parameter_sources import Growth
from fairseq_depthwise.growth.trained_model import TrainedModel, block_size, read_trained_model
from fairseq_depthwise.models.base.config import EncoderDecoderConfig
from fairseq_depthwise.models.base.model import StackModel

logger = logging.getLogger(__name__)


def start_from(
    path: str,
    model: StackModel,
    options: EncoderDecoderConfig,
    *,
    sides: tuple[str, ...],
    strategy: str,
    init: str = "copy",
) -> tuple[int, list[str]]:
    """Copy a trained model's parameters into a new one, growing the ``sides`` to the new one's depth.

    Returns the updates that the trained model has seen, and the names of the parameters that growth added.
    """
    trained = read_trained_model(path, "--growth-from")
    _require_same_options(trained, type(model), options, sides)
    depths = {side: (trained.depth(side), len(getattr(model, side).layers)) for side in sides}
    try:
        sources = {
            side: layer_sources(present, wanted, strategy, block_size(options, side), init)
            for side, (present, wanted) in depths.items()
            if present != wanted
        }
        growth = Growth(model, trained.values, sources, init)
        if unused := trained.values.keys() - set(growth.values()):
            raise UserError(f"this model has no place for its {min(unused)}; give the same options")
        grown = growth.grow(trained.values)
        known = {name: grown[name] for name, source in growth.items() if source is not None}
        nn.Module.load_state_dict(model, known, strict=False)
        require_one_value(model, trained.values)
    except UserError as error:
        raise UserError(f"--growth-from {path}: {error}") from None
    except RuntimeError as error:  # of another size; all options are the same
        raise UserError(f"--growth-from {path} was trained with dictionaries of other sizes; give the same") from error
    logger.info(
        "started from %s, %d updates, %s%s",
        path,
        trained.updates,
        ", ".join(f"{side} of {present} layers" for side, (present, _) in depths.items()),
        "".join(f"; {remark}" for remark in trained.remarks),
    )
    if known.keys() != growth.keys():
        logger.info("new, with first values as in any new model: %s", ", ".join(sorted(growth.keys() - known)))
    return trained.updates, growth.new if sources else []


def _require_same_options(
    trained: TrainedModel, family: type[StackModel], wanted: EncoderDecoderConfig, sides: tuple[str, ...]
) -> None:
    """Raise :class:`UserError` naming what differs, unless a model with these options can start from ``trained``."""
    if trained.family is not family:
        raise UserError(
            f"--growth-from {trained.path} holds a {trained.family.__name__}, and --arch is a {family.__name__}; both "
            "must be of one family, and fairseq's transformer is an sdt_transformer"
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
