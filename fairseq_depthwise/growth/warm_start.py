"""Starting a new run from a trained, perhaps shallower, model (``--growth-from``)."""

from __future__ import annotations

import logging

from fairseq_compat import UserError
from fairseq_depthwise.growth.grown_model import fill, start_at_identity
from fairseq_depthwise.growth.layer_sources import layer_sources
from fairseq_depthwise.growth.parameter_sources import apply_parameter_map, new_parameters, parameter_sources
from fairseq_depthwise.growth.trained_model import read_trained_model, require_same_kind, require_same_shapes
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
    block_size: int,
    init: str = "copy",
) -> tuple[int, list[str]]:
    """Copy a trained model's parameters into a new one, growing it to the new one's depth.

    Args:
        path: checkpoint of the same family, or of a stock fairseq transformer for ``sdt_transformer``.
        model: the new model; what the trained one has not got keeps its first values.
        options: the new model's.
        sides: stacks that may be deeper in ``model``.
        strategy: how layers are copied.
        block_size: layers in a connected block of the new encoder.
        init: how new layers start, one of ``layer_sources.INITS``.

    Returns:
        the updates that the trained model has seen, and the names of the parameters that growth added.

    Raises:
        UserError: the file cannot be read, or its model differs in more than depth; the message says in what.
    """
    trained = read_trained_model(path, "--growth-from")
    require_same_kind(trained, type(model), options, sides)
    sources: dict[str, list[int | None]] = {}
    for side in sides:
        present, wanted = trained.depth(side), len(getattr(model, side).layers)
        if present > wanted:
            raise UserError(
                f"--growth-from {path} has {present} {side} layers and the first of --growth-stages {wanted}; begin "
                f"with {present} or more"
            )
        if present < wanted:
            try:
                blocks = block_size if side == "encoder" else 0
                sources[side] = layer_sources(present, wanted, strategy, blocks, init)
            except UserError as error:
                raise UserError(f"--growth-from {path}: {error}") from None
    own = model.state_dict()
    names = parameter_sources(own, trained.values, sources, block_size)
    require_same_shapes(trained, own, names)
    if init == "zero":
        names.update(dict.fromkeys(start_at_identity(model, sources)))
    fill(model, apply_parameter_map(trained.values, names))
    new = sorted({_module_or_row(name) for name, source in names.items() if source is None})
    logger.info(
        "started from %s, %d updates, %s%s",
        path,
        trained.updates,
        ", ".join(f"{side} of {trained.depth(side)} layers" for side in sides),
        "".join(f"; {remark}" for remark in trained.remarks),
    )
    if new:
        logger.info("new, with first values as in any new model: %s", ", ".join(new))
    return trained.updates, new_parameters(own, trained.values, sources, block_size) if sources else []


def _module_or_row(name: str) -> str:
    """Return a parameter's module, or the row itself of a connection, whose other rows may be old."""
    module, _, last = name.rpartition(".")
    return name if last.isdigit() else module
