"""From which parameter of the shallow model each parameter of the deep one starts.

A model is known by the names of its parameters alone: a stack's layers are ``encoder.layers.N.``, and its connection
may have rows ``encoder.connection.rows.N`` and block norms ``encoder.connection.norms.N.``. So this holds for every
family, and for everything that has a value for each parameter: weights, their moving average, an optimizer's moments.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from fairseq_depthwise.growth.layer_sources import new_layers

Value = TypeVar("Value")

#: Side ("encoder" or "decoder") -> source layer of each layer of the grown stack, None where it is new; see
#: ``layer_sources``.
SourcesOfSides = Mapping[str, Sequence[int | None]]

_LAYER = re.compile(r"(?P<side>encoder|decoder)\.layers\.(?P<index>\d+)\.(?P<rest>.+)")
_BLOCK_NORM = re.compile(r"(?P<side>encoder|decoder)\.connection\.norms\.(?P<index>\d+)\.(?P<rest>.+)")


def parameter_sources(
    wanted: Iterable[str], present: Collection[str], sources: SourcesOfSides, block_size: int = 0
) -> dict[str, str | None]:
    """Return each name in the deep model -> the name in the shallow one, or None: as the deep model was built.

    - A layer is copied from its source layer, and new where it has none. What its source lacks (the depth-wise model's
      first layer has no input norm) comes from the lowest layer that has it, and is new where none does.
    - Rows of the block connection stay; the new ones are as built, 1/(n+1).
    - The norm of an old block stays; that of a new block is the one of the block that its layers were copied from.
    - All else stays.

    Args:
        wanted: the deep model's names.
        present: the shallow model's names.
        sources: for each side that grows, the source layers.
        block_size: layers in a connected block of a side that grows; 0 without block connections.
    """
    present = set(present)
    result: dict[str, str | None] = {}
    for name in wanted:
        source: str | None = name
        if (match := _LAYER.fullmatch(name)) and match["side"] in sources:
            layers = sources[match["side"]]
            layer = layers[int(match["index"])]
            if layer is not None:
                stem, rest = f"{match['side']}.layers", match["rest"]
                candidates = [layer, *range(1 + max(index for index in layers if index is not None))]
                named = (f"{stem}.{index}.{rest}" for index in candidates)
                source = next((candidate for candidate in named if candidate in present), None)
            else:
                source = None
        elif (match := _BLOCK_NORM.fullmatch(name)) and match["side"] in sources:
            top = sources[match["side"]][_top_layer(match, block_size)]
            source = None if top is None else f"{match['side']}.connection.norms.{top // block_size}.{match['rest']}"
        result[name] = source if source in present else None
    return result


def new_parameters(
    wanted: Iterable[str], present: Collection[str], sources: SourcesOfSides, block_size: int = 0
) -> list[str]:
    """Return the names in the deep model of what growth added, copies too; the arguments are as above.

    These are the parameters of the layers that are not the old ones, and of their part of the connection.
    """
    new = {side: new_layers(layers) for side, layers in sources.items()}
    result = []
    for name in wanted:
        if (match := _LAYER.fullmatch(name)) and match["side"] in new:
            added = int(match["index"]) in new[match["side"]]
        elif (match := _BLOCK_NORM.fullmatch(name)) and match["side"] in new:
            added = _top_layer(match, block_size) in new[match["side"]]
        else:
            added = name not in present
        if added:
            result.append(name)
    return result


def _top_layer(norm: re.Match[str], block_size: int) -> int:
    """Return the uppermost layer of the block that a norm belongs to."""
    return (int(norm["index"]) + 1) * block_size - 1


def apply_parameter_map(values: Mapping[str, Value], sources: Mapping[str, str | None]) -> dict[str, Value]:
    """Return the shallow model's value for each parameter of the deep one; new parameters are left out."""
    return {name: values[source] for name, source in sources.items() if source is not None and source in values}
