"""From which values of the shallow model those of the deep one are made, and making a model deeper where it stands.

The stacks of a model say themselves which of their parts belong to a layer: the list ``layers``, and what a connection
has in its ``of_layers``. All else is known by its name alone. So this holds for every family, and for everything that
has a value for each parameter: weights, their moving average, an optimizer's moments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fairseq_compat import UserError
from fairseq_depthwise.growth.layer_sources import new_layers
from fairseq_depthwise.modules.stack import SIDES, OfLayers

#: Side ("encoder" or "decoder") -> source layer of each layer of the grown stack, None where it is new; see
#: ``layer_sources``.
SourcesOfSides = Mapping[str, Sequence[int | None]]

_ITEM = re.compile(r"(?P<list>(?P<side>encoder|decoder)\.(?:connection\.)?\w+)\.(?P<index>\d+)(?P<rest>.*)")


class _Item(NamedTuple):
    """A parameter of the deep model that belongs to a layer; its name is ``stem``, an index and ``rest``.

    ``layer`` is the depth, and ``sources`` has one more, for what reads the stack's output. Sub-layers that are
    connected one by one count as layers.
    """

    stem: str
    rest: str
    of: OfLayers
    layer: int
    is_new: bool
    sources: Sequence[int | None]


class Growth(dict[str, str | None]):
    """Each name in the deep model -> the name in the shallow one, or None: as the deep model was built.

    - What belongs to a layer comes from what belongs to its source layer, and is new where it has none. What the source
      lacks (the depth-wise model's first layer has no input norm, the first of a stack no query) comes from the lowest
      layer that has it, and is new where none does.
    - In a vector that weighs layers, each weight goes to the place of its layer, and layers without one get 0. Of
      layers with the same source, an old layer weighs the old one, a copy the nearest below it, and itself.
    - With zero, new layers get residual branches that end in 0, and all that the connection has for them is as built.
    - All else stays.

    ``deep`` is the deep model, as it was built; with zero, ends of branches are set to 0 here. ``new`` has the names of
    what growth added, copies too: parameters of layers that are not old, and of the connection what belongs to these or
    weighs them.
    """

    def __init__(
        self, deep: nn.Module, present: Mapping[str, Tensor], sources: SourcesOfSides, init: str = "copy"
    ) -> None:
        super().__init__()
        self._is_zero = init == "zero"
        self._lists: dict[str, OfLayers] = {}
        self._new = {side: new_layers(layers) for side, layers in sources.items()}
        self._layers = {side: [*layers, _depth(layers)] for side, layers in sources.items()}
        for side, layers in sources.items():
            stack: Any = getattr(deep, side)
            self._lists[f"{side}.layers"] = OfLayers()
            for name, of in stack.connection.of_layers.items():
                if self._is_zero or not of.stays:
                    self._lists[f"{side}.connection.{name}"] = of
            if self._is_zero:
                require_identity(stack, layers)
        built = deep.state_dict()
        self.update({name: self.source(name, present) for name in built})
        #: Name of a vector that weighs layers -> for each of its weights, which one of its source it is; None: 0.
        self._weights: dict[str, list[int | None]] = {}
        self.new: list[str] = []
        for name, source in self.items():
            item = self._item(name)
            if item and item.of.weighs and source is not None:
                self._weights[name] = _moved(item, built[name].numel(), present[source].numel())
            if (item.is_new or None in self._weights.get(name, ())) if item else name not in present:
                self.new.append(name)
        if self._is_zero:
            self.update(dict.fromkeys(self._start_at_zero(deep)))
        self._fresh = {name: built[name] for name, source in self.items() if source is None}
        of_memory: dict[int, str] = {}
        #: Name -> the first of the names of the same parameter.
        self._tied = {name: of_memory.setdefault(value.data_ptr(), name) for name, value in built.items()}

    def source(self, name: str, present: Collection[str]) -> str | None:
        """Return the name in the shallow model, whose names are ``present``, of a parameter or a buffer."""
        item = self._item(name)
        if item is None:
            return name if name in present else None
        layer = item.sources[item.layer]
        if layer is None or (item.is_new and self._is_zero and ".connection." in item.stem):
            return None
        index = layer // item.of.step - item.of.first // item.of.step
        others = range(index % item.of.sublayers, len(item.sources), item.of.sublayers)
        candidates = (f"{item.stem}.{number}{item.rest}" for number in (index, *others))
        return next((candidate for candidate in candidates if candidate in present), None)

    def part(self, name: str, value: Tensor) -> Tensor:
        """Return what a parameter of the deep model takes from a value of its source's shape: all, or moved weights."""
        if name not in self._weights or value.dim() != 1:
            return value
        places = self._weights[name]
        zero = value.new_zeros(1)
        return torch.cat([zero if weight is None else value[weight : weight + 1] for weight in places])

    def grow(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the deep model's values, made of the shallow one's; new ones are as the deep model was built.

        A value that stays keeps its memory, a copy has its own, and tied parameters are one tensor.
        """
        like = next(iter(values.values()))
        taken: set[int] = set()
        result: dict[str, Tensor] = {}
        for name, source in self.items():
            if (first := self._tied[name]) in result:
                result[name] = result[first]
                continue
            value = self._fresh[name].to(like) if source is None else self.part(name, values[source])
            result[name] = value.clone() if value.data_ptr() in taken else value
            taken.add(value.data_ptr())
        return result

    def _item(self, name: str) -> _Item | None:
        match = _ITEM.fullmatch(name)
        if match is None or match["list"] not in self._lists:
            return None
        of, side = self._lists[match["list"]], match["side"]
        layer, sublayers = of.first + int(match["index"]) * of.step, range(of.sublayers)
        sources = [
            None if one is None else one * of.sublayers + place for one in self._layers[side] for place in sublayers
        ]
        return _Item(match["list"], match["rest"], of, layer, layer // of.sublayers in self._new[side], sources)

    def _start_at_zero(self, deep: nn.Module) -> list[str]:
        """Set what ends a residual branch of a new layer to 0; return what is not copied: also what weighs branches."""
        names = []
        for side, new in self._new.items():
            for index in sorted(new):
                layer: Any = getattr(deep, side).layers[index]
                stem = f"{side}.layers.{index}"
                for end in layer.branch_ends:
                    for name, parameter in layer.get_submodule(end).named_parameters():
                        nn.init.zeros_(parameter)
                        names.append(f"{stem}.{end}.{name}")
                names.extend(f"{stem}.{name}" for name in getattr(layer, "branch_weights", ()))
        return names


def grow_model(
    model: nn.Module,
    build: Callable[[], nn.Module],
    sources: SourcesOfSides,
    seed: int = 1,
    *,
    init: str = "copy",
) -> Growth:
    """Make ``model``, an encoder-decoder, as deep as what ``build`` returns, and give it its own parameters.

    The object stays the same, so that whoever holds it decodes and trains the deep model; its encoder and its decoder
    are replaced. Type, device and mode stay. New layers are those of a new model, drawn from ``seed`` in float32.
    """
    with drawing_from(seed):
        grown = build().to(next(model.parameters()))
    values = model.state_dict()
    growth = Growth(grown, values, sources, init)
    taken = growth.grow(values)
    for name, parameter in grown.named_parameters():
        parameter.data = taken[name]
    # Also tables that no checkpoint keeps: another device would compute slightly other positions.
    tables = dict(model.named_buffers())
    for name, table in grown.named_buffers():
        if (source := growth.source(name, tables)) is not None:
            table.data = tables[source].clone()
    grown.train(model.training)
    for side in SIDES:
        setattr(model, side, getattr(grown, side))
    return growth


@contextmanager
def drawing_from(seed: int) -> Iterator[None]:
    """Draw random values from ``seed`` within it, on the CPU; the process's own generator stays where it is."""
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(seed % 2**63)
        yield


def require_identity(stack: nn.Module, sources: Sequence[int | None]) -> None:
    """Raise :class:`UserError` unless a stack that grows so can compute the same function: what its modules say."""
    depth = _depth(sources)
    is_on_top = list(sources[:depth]) == list(range(depth))
    layers: Any = stack.layers
    never: list[Any] = [] if hasattr(layers[0], "branch_ends") else ["layers without residual branches"]
    never += [module.no_identity for module in stack.modules() if hasattr(module, "no_identity")]
    moved = [module.identity_on_top for module in stack.modules() if hasattr(module, "identity_on_top")]
    if never or (moved and not is_on_top):
        raise UserError(
            f"--growth-init zero (--init of grow) cannot keep what a model computes with {[*never, *moved][0]}"
            + ("; take copy or random" if never else " where layers move; take copy, or the strategy top-most")
        )


def _depth(sources: Sequence[int | None]) -> int:
    """Return the depth of the shallow stack, whose layers are all in the deep one."""
    return 1 + max(layer for layer in sources if layer is not None)


def _moved(item: _Item, wanted: int, present: int) -> list[int | None]:
    """Return for each of ``wanted`` weights which of ``present`` it is, None for one of a layer without a weight."""
    step = item.of.step
    tops = item.sources[step - 1 :: step][: wanted - 1]
    below = [None if top is None else top // step for top in tops]
    choose = max if item.is_new else min
    weights: list[int | None] = [0, *[None] * (wanted - 1)]  # the embedding's is the first
    for layer in range(present - 1):
        weights[1 + choose(place for place, source in enumerate(below) if source == layer)] = 1 + layer
    return weights
