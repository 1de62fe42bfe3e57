"""Which layer of the shallow stack each layer of the deep one starts from, and which layers are new.

Source: "Shallow-to-Deep Training for Neural Machine Translation", Section 4.1 and Tables 2 and 3. All layers count
from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fairseq_compat import UserError

#: How new layers start: as copies of their source, as copies that pass on what they read, or anew.
INITS = ("copy", "zero", "random")


class _Strategy(NamedTuple):
    """A strategy of growth.

    Attributes:
        sources: returns the source of each layer, given the depth of the stack and the number of new layers.
        copies_once: no layer is copied twice, so that a stack at most doubles.
        moves_layers: copies are inserted between old layers.
    """

    sources: Callable[[int, int], list[int | None]]
    copies_once: bool = False
    moves_layers: bool = False


def _top_most(depth: int, growth: int) -> list[int | None]:
    """The top ``growth`` layers once more, in order."""
    return [*range(depth), *range(depth - growth, depth)]


def _top(depth: int, growth: int) -> list[int | None]:
    """The top layer ``growth`` times."""
    return [*range(depth), *[depth - 1] * growth]


def _interpolation(depth: int, growth: int) -> list[int | None]:
    """Each of the top ``growth`` layers followed by its copy."""
    # Sorting puts each copy right above its original.
    return [*sorted([*range(depth), *range(depth - growth, depth)])]


def _stack(depth: int, growth: int) -> list[int | None]:
    """The whole stack once more, or several times."""
    if growth % depth:
        raise UserError(
            f"{_impossible(depth, growth)}; stack repeats all layers, so the depth must be a multiple of {depth}"
        )
    return [*range(depth)] * ((depth + growth) // depth)


def _middle(depth: int, growth: int) -> list[int | None]:
    """The middle ``growth`` layers, followed by their copies."""
    # The layers from ``start`` to ``start + growth - 1`` are repeated as a block.
    start = (depth - growth) // 2
    return [*range(start + growth), *range(start, depth)]


def _random(depth: int, growth: int) -> list[int | None]:
    """New layers on top, initialized as in a new model."""
    return [*range(depth), *[None] * growth]


_STRATEGIES = {
    "top-most": _Strategy(_top_most, copies_once=True),
    "top": _Strategy(_top),
    "interpolation": _Strategy(_interpolation, copies_once=True, moves_layers=True),
    "stack": _Strategy(_stack),
    "middle": _Strategy(_middle, copies_once=True, moves_layers=True),
    "random": _Strategy(_random),
}

#: The names of the strategies; the first is the default.
STRATEGIES = tuple(_STRATEGIES)


def layer_sources(
    depth: int, layers: int, strategy: str = STRATEGIES[0], block_size: int = 0, init: str = "copy"
) -> list[int | None]:
    """Return, for each of ``layers`` layers, its source in a stack of ``depth`` layers, or None for a new one.

    For 12 to 18 layers: top-most is 0 to 11 and then 6 to 11; interpolation is 0 to 5 and then 6, 6, 7, 7 up to 11, 11;
    middle is 0 to 8, 3 to 8, 9 to 11. ``block_size``: layers in a connected block; 0 where there are none.

    Raises:
        UserError: the strategy or the initialization is unknown, or the strategy cannot make such a stack.
    """
    require_known("strategy", strategy, STRATEGIES)
    require_known("init", init, INITS)
    growth = layers - depth
    rules = _STRATEGIES[strategy]
    if rules.moves_layers and block_size > 1:
        raise UserError(
            f"{strategy} puts copies between layers, which tears blocks of {block_size} layers apart; it needs a block "
            "size of 0 or 1"
        )
    impossible = _impossible(depth, growth)
    if growth < 1:
        raise UserError(f"{impossible}; it must become deeper")
    if block_size and layers % block_size:
        raise UserError(f"{impossible}; with blocks of {block_size} layers it must be a multiple of {block_size}")
    if rules.copies_once and growth > depth:
        raise UserError(
            f"{impossible}; {strategy} copies each layer at most once: grow to at most {2 * depth}, in several steps, "
            "or take the strategy top"
        )
    sources = rules.sources(depth, growth)
    if init == "random":
        new = new_layers(sources)
        return [None if index in new else source for index, source in enumerate(sources)]
    return sources


def require_known(option: str, value: str, known: Sequence[str]) -> None:
    """Raise UserError if an option of growth has an unknown value."""
    if value not in known:
        raise UserError(f"{option} {value!r} is unknown; it must be one of {', '.join(known)}")


def new_layers(sources: Sequence[int | None]) -> set[int]:
    """Return the layers that growth added; among layers with the same source, the lowest is the old one."""
    return {index for index, source in enumerate(sources) if source is None or source in sources[:index]}


def block_size(options: Any, side: str) -> int:
    """Return the number of layers in a connected block of a side, by a model's options; 0 if it has no blocks."""
    return (getattr(options, "encoder_block_size", 0) or 0) if side == "encoder" else 0


def _impossible(depth: int, growth: int) -> str:
    return f"a stack of {depth} layers cannot be grown to {depth + growth}"
