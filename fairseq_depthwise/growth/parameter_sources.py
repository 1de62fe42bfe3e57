"""From which parameter of the shallow model each parameter of the deep one starts.

A model is known by the names of its parameters alone: a stack's layers are ``encoder.layers.N.``, and its connection
may have rows ``encoder.connection.rows.N`` and block norms ``encoder.connection.norms.N.``. So this holds for every
family, and for everything that has a value for each parameter: weights, their moving average, an optimizer's moments.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

Value = TypeVar("Value")

#: Side ("encoder" or "decoder") -> source layer of each layer of the grown stack; see ``layer_sources``.
SourcesOfSides = Mapping[str, Sequence[int]]

_LAYER = re.compile(r"(?P<side>encoder|decoder)\.layers\.(?P<index>\d+)\.(?P<rest>.+)")
_BLOCK_NORM = re.compile(r"(?P<side>encoder|decoder)\.connection\.norms\.(?P<index>\d+)\.(?P<rest>.+)")


def parameter_sources(
    wanted: Iterable[str], present: Collection[str], sources: SourcesOfSides, block_size: int = 0
) -> dict[str, str | None]:
    """Name in the deep model -> name in the shallow one, or None: as the deep model was built.

    - A layer is copied from its source layer. What that one lacks (the depth-wise model's first layer has no input
      norm) comes from the lowest layer that has it, and is new where none does.
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
        source = name
        if (found := _LAYER.fullmatch(name)) and found["side"] in sources:
            layers = sources[found["side"]]
            stem, rest = f"{found['side']}.layers", found["rest"]
            candidates = [layers[int(found["index"])], *range(max(layers) + 1)]
            source = next((one for index in candidates if (one := f"{stem}.{index}.{rest}") in present), name)
        elif (found := _BLOCK_NORM.fullmatch(name)) and found["side"] in sources:
            top_layer_of_block = (int(found["index"]) + 1) * block_size - 1
            block = sources[found["side"]][top_layer_of_block] // block_size
            source = f"{found['side']}.connection.norms.{block}.{found['rest']}"
        result[name] = source if source in present else None
    return result


def take_sources(values: Mapping[str, Value], sources: Mapping[str, str | None]) -> dict[str, Value]:
    """What the shallow model has for each parameter, for the deep one's; new parameters are left out."""
    return {name: values[source] for name, source in sources.items() if source is not None and source in values}
