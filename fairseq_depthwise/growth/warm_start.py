"""Starting a new run from a trained, perhaps shallower, model (``--growth-from``)."""

from __future__ import annotations

import logging

from fairseq_compat import UserError
from fairseq_depthwise.growth.grown_model import fill
from fairseq_depthwise.growth.layer_sources import layer_sources
from fairseq_depthwise.growth.parameter_sources import Growth
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
    growth = Growth(model, trained.values, sources, init)
    require_same_shapes(trained, model.state_dict(), growth)
    grown = growth.grow(trained.values)
    fill(model, {name: grown[name] for name, source in growth.items() if source is not None})
    new = sorted({_module_or_row(name) for name, source in growth.items() if source is None})
    logger.info(
        "started from %s, %d updates, %s%s",
        path,
        trained.updates,
        ", ".join(f"{side} of {trained.depth(side)} layers" for side in sides),
        "".join(f"; {remark}" for remark in trained.remarks),
    )
    if new:
        logger.info("new, with first values as in any new model: %s", ", ".join(new))
    return trained.updates, growth.new if sources else []


def _module_or_row(name: str) -> str:
    """Return a parameter's module, or the row itself of a connection, whose other rows may be old."""
    module, _, last = name.rpartition(".")
    return name if last.isdigit() else module
