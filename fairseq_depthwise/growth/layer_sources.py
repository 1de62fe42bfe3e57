"""Which layer of the shallow stack each layer of the deep one starts from, and which layers are new.

Source: "Shallow-to-Deep Training for Neural Machine Translation", Section 4.1 and Tables 2 and 3. All layers count
from 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairseq_compat import UserError

#: top-most: the top g layers once more, in order; top: the top layer g times; interpolation: each of the top g layers
#: followed by its copy; stack: the whole stack once more, or several times; middle: the middle g layers, followed by
#: their copies; random: g layers on top that start anew.
STRATEGIES = ("top-most", "top", "interpolation", "stack", "middle", "random")

#: How new layers start: as copies of their source, as copies that pass on what they read, or anew.
INITS = ("copy", "zero", "random")

#: Those that copy a layer at most once, and those that put copies between layers.
_AT_MOST_ONCE = ("top-most", "interpolation", "middle")
_BETWEEN = ("interpolation", "middle")


def layer_sources(
    depth: int, layers: int, strategy: str = "top-most", block_size: int = 0, init: str = "copy"
) -> list[int | None]:
    """Return, for each of ``layers`` layers, the layer of a stack of ``depth`` that it starts from; None: it is new.

    For 12 to 18 layers: top-most is 0 to 11 and then 6 to 11; interpolation is 0 to 5 and then 6, 6, 7, 7 up to 11, 11;
    middle is 0 to 8, 3 to 8, 9 to 11. ``block_size``: layers in a connected block; 0 where there are none.

    Raises:
        UserError: the strategy or the initialization is unknown, or the strategy cannot make such a stack.
    """
    require_known("strategy", strategy, STRATEGIES)
    require_known("init", init, INITS)
    growth = layers - depth
    if strategy in _BETWEEN and block_size > 1:
        raise UserError(
            f"{strategy} puts copies between layers, which tears blocks of {block_size} layers apart; it needs a block "
            "size of 0 or 1"
        )
    impossible = f"a stack of {depth} layers cannot be grown to {layers}"
    if growth < 1:
        raise UserError(f"{impossible}; it must become deeper")
    if block_size and layers % block_size:
        raise UserError(f"{impossible}; with blocks of {block_size} layers it must be a multiple of {block_size}")
    if strategy == "stack" and growth % depth:
        raise UserError(f"{impossible}; stack repeats all layers, so the depth must be a multiple of {depth}")
    if strategy in _AT_MOST_ONCE and growth > depth:
        raise UserError(
            f"{impossible}; {strategy} copies each layer at most once: grow to at most {2 * depth}, in several steps, "
            "or take the strategy top"
        )
    start = (depth - growth) // 2  # of the middle g layers
    sources: dict[str, list[int | None]] = {
        "top-most": [*range(depth), *range(depth - growth, depth)],
        "top": [*range(depth), *[depth - 1] * growth],
        "interpolation": sorted([*range(depth), *range(depth - growth, depth)]),
        "stack": [*range(depth)] * (layers // depth),
        "middle": [*range(start + growth), *range(start, depth)],
        "random": [*range(depth), *[None] * growth],
    }
    copies = sources[strategy]
    if init == "random":
        new = new_layers(copies)
        return [None if index in new else source for index, source in enumerate(copies)]
    return copies


def require_known(option: str, value: str, known: Sequence[str]) -> None:
    """Raise UserError where an option of growth has none of its declared values."""
    if value not in known:
        raise UserError(f"{option} {value!r} is unknown; it must be one of {', '.join(known)}")


def new_layers(sources: Sequence[int | None]) -> set[int]:
    """Return the layers of a grown stack that growth added; of equal sources the lowest layer is the old one."""
    return {index for index, source in enumerate(sources) if source is None or source in sources[:index]}


def block_size(options: Any, side: str) -> int:
    """Return how many layers a connected block of a side has, by a model's options; 0 where there are no blocks."""
    return (getattr(options, "encoder_block_size", 0) or 0) if side == "encoder" else 0
