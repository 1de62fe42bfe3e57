"""Map each parameter of a deep model to its source in the shallow one, and make a model deeper in place.

A model's stacks declare which of their parts belong to a layer: the list ``layers``, and what a connection names in its
``of_layers``. Everything else is matched by name. So this works for every family, and for anything with a value per
parameter: weights, their moving average, an optimizer's moments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fairseq_compat import UserError
from fairseq_depthwise.growth.layer_sources import new_layers
from fairseq_depthwise.modules.stack import SIDES, OfLayers

#: Side ("encoder" or "decoder") -> source layer of each layer of the grown stack, None where it is new; see
#: ``layer_sources``.
SourcesOfSides = Mapping[str, Sequence[int | None]]

#: For each weight of a deep vector that weighs layers, its place in the shallow vector; None for a weight of 0.
Places = Sequence[int | None]

#: Matches names such as encoder.layers.3.feed_forward.first.weight and encoder.connection.rows.2.
_ITEM = re.compile(r"(?P<list>(?P<side>encoder|decoder)\.(?:connection\.)?\w+)\.(?P<index>\d+)(?P<rest>.*)")


@dataclass(frozen=True)
class ParameterMap:
    """Where each parameter of a deep model comes from.

    Attributes:
        sources: name in the deep model -> name in the shallow one; None if the value stays as built.
        places: name of a vector that weighs layers -> where each of its weights comes from.
        first_names: name -> the first name of the same parameter.
        built: the values of parameters without a source, as the deep model was built.
        new: the names of what growth added, including copies: parameters of new layers, and what the connection has
            for these or weighs them with.
    """

    sources: Mapping[str, str | None]
    places: Mapping[str, Places]
    first_names: Mapping[str, str]
    built: Mapping[str, Tensor]
    new: tuple[str, ...]

    def apply(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the deep model's values, made from the shallow one's; those without a source stay as built.

        The first use of a value keeps its memory, copies have their own, and tied parameters are one tensor.
        """
        # New values take the type and device of the others: a checkpoint may be in half precision.
        like = next(iter(values.values()))
        used: set[int] = set()
        result: dict[str, Tensor] = {}
        for name, source in self.sources.items():
            first_name = self.first_names[name]
            if first_name in result:
                result[name] = result[first_name]
                continue
            # A value that two layers take is copied, so that they can be trained separately.
            value = self.built[name].to(like) if source is None else self.part(name, values[source])
            result[name] = value.clone() if value.data_ptr() in used else value
            used.add(value.data_ptr())
        return result

    def part(self, name: str, value: Tensor) -> Tensor:
        """Return what a parameter takes from a value of its source's shape: all of it, or weights at new places."""
        if name not in self.places or value.dim() != 1:
            return value
        zero = value.new_zeros(1)
        weights = [zero if place is None else value[place : place + 1] for place in self.places[name]]
        return torch.cat(weights)


def map_parameters(
    deep: nn.Module, present: Mapping[str, Tensor], sources: SourcesOfSides, init: str = "copy"
) -> ParameterMap:
    """Map the parameters of a deep model, as it was built, to those that are ``present`` in the shallow one.

    - A parameter of a layer comes from the source layer, and is new if that is None. What the source lacks (the
      depth-wise model's first layer has no input norm, the first of a stack no query) comes from the lowest layer that
      has it, and is new if none does.
    - In a vector that weighs layers, each weight moves with its layer, and layers without one get 0. Of layers with
      the same source, an old layer weighs the old one, and a copy the nearest one below it, and itself.
    - With ``init`` zero, the ends of new residual branches and all that the connection has for new layers stay as
      built; see :func:`zero_new_branches`.
    - Everything else stays.

    Raises:
        UserError: with ``init`` zero, a stack could not compute the same function.
    """
    if init == "zero":
        for side, layers in sources.items():
            require_identity(getattr(deep, side), layers)
    return _map_parameters(_GrownStacks(deep, sources, init), deep, present)


def zero_new_branches(deep: nn.Module, sources: SourcesOfSides) -> None:
    """Set the ends of residual branches of new layers to 0, so that these layers pass on what they read."""
    for layer, _ in _new_layers_of(deep, sources):
        for end in layer.branch_ends:
            for parameter in layer.get_submodule(end).parameters():
                nn.init.zeros_(parameter)


def grow_model(
    model: nn.Module,
    build: Callable[[], nn.Module],
    sources: SourcesOfSides,
    seed: int = 1,
    *,
    init: str = "copy",
) -> ParameterMap:
    """Make ``model``, an encoder-decoder, as deep as what ``build`` returns, and give it its own parameters.

    The object stays the same, so that whatever refers to it decodes and trains the deep model; its encoder and decoder
    are replaced. Type, device and mode stay. New layers are those of a new model, drawn from ``seed`` in float32.
    """
    with drawing_from(seed):
        # Built in float32 on the CPU, then converted, so that random values depend on the seed alone.
        deep = build().to(next(model.parameters()))
    values = model.state_dict()
    parameter_map = map_parameters(deep, values, sources, init)
    if init == "zero":
        zero_new_branches(deep, sources)

    # Replace parameters one by one, so that tied ones stay tied.
    grown_values = parameter_map.apply(values)
    for name, parameter in deep.named_parameters():
        parameter.data = grown_values[name]
    # Also tables that checkpoints do not have: another device would compute slightly different positions.
    stacks = _GrownStacks(deep, sources, init)
    tables = dict(model.named_buffers())
    for name, table in deep.named_buffers():
        source = stacks.source(name, tables)
        if source is not None:
            table.data = tables[source].clone()

    deep.train(model.training)
    for side in SIDES:
        setattr(model, side, getattr(deep, side))
    return parameter_map


@contextmanager
def drawing_from(seed: int) -> Iterator[None]:
    """Draw random values on the CPU from ``seed`` within the block; the process's own generator is not affected."""
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(seed % 2**63)
        yield


def require_identity(stack: nn.Module, sources: Sequence[int | None]) -> None:
    """Raise :class:`UserError` unless, by what its modules declare, a stack that grows like this can stay the same."""
    depth = _depth(sources)
    # Whether the old layers stay in place, with all new ones above them.
    is_on_top = list(sources[:depth]) == list(range(depth))
    layers: Any = stack.layers
    # Only residual layers have branch_ends.
    never: list[Any] = [] if hasattr(layers[0], "branch_ends") else ["layers without residual branches"]
    never += [module.no_identity_reason for module in stack.modules() if hasattr(module, "no_identity_reason")]
    moved = [
        module.identity_only_on_top_option
        for module in stack.modules()
        if hasattr(module, "identity_only_on_top_option")
    ]
    if never or (moved and not is_on_top):
        raise UserError(
            f"--growth-init zero (--init of grow) cannot keep what a model computes with {[*never, *moved][0]}"
            + ("; take copy or random" if never else " where layers move; take copy, or the strategy top-most")
        )


class _Item(NamedTuple):
    """A parameter of the deep model that belongs to a layer; its name is ``stem``, an index and ``rest``.

    ``layer`` is its layer; ``sources`` has one more entry than there are layers, for what reads the stack's output.
    Sub-layers that are connected one by one count as layers.
    """

    stem: str
    rest: str
    of: OfLayers
    layer: int
    is_new: bool
    sources: Sequence[int | None]


class _GrownStacks:
    """The stacks of a deep model: which parameters belong to which layer, and where that layer comes from."""

    def __init__(self, deep: nn.Module, sources: SourcesOfSides, init: str) -> None:
        self._sides = sources
        self._is_zero = init == "zero"
        self._new = {side: new_layers(layers) for side, layers in sources.items()}
        # One more than there are layers: what reads the stack's output comes from what read it before.
        self._layers = {side: [*layers, _depth(layers)] for side, layers in sources.items()}
        # With zero, even items that otherwise stay in place have to move (OfLayers.stays).
        self._lists: dict[str, OfLayers] = {}
        for side in sources:
            stack: Any = getattr(deep, side)
            self._lists[f"{side}.layers"] = OfLayers()
            for name, of in stack.connection.of_layers.items():
                if self._is_zero or not of.stays:
                    self._lists[f"{side}.connection.{name}"] = of

    def item(self, name: str) -> _Item | None:
        """Return what a parameter belongs to; None if it belongs to no layer."""
        match = _ITEM.fullmatch(name)
        if match is None or match["list"] not in self._lists:
            return None
        # Item i of a list belongs to layer first + i * step, in sub-layers where these are connected.
        of, side = self._lists[match["list"]], match["side"]
        layer = of.first + int(match["index"]) * of.step
        # From layers to sub-layers: sub-layer s of a layer comes from sub-layer s of its source.
        sources: list[int | None] = []
        for source in self._layers[side]:
            for place in range(of.sublayers):
                sources.append(None if source is None else source * of.sublayers + place)
        is_new = layer // of.sublayers in self._new[side]
        return _Item(match["list"], match["rest"], of, layer, is_new, sources)

    def source(self, name: str, present: Collection[str]) -> str | None:
        """Return the name in the shallow model, whose names are ``present``, of a parameter or a buffer."""
        item = self.item(name)
        if item is None:
            return name if name in present else None
        layer = item.sources[item.layer]
        if layer is None or (item.is_new and self._is_zero and ".connection." in item.stem):
            return None
        # The other way round: the item of the shallow list that belongs to that layer.
        index = layer // item.of.step - item.of.first // item.of.step
        # If the source lacks it, the lowest layer that has it, in the same sub-layer.
        lower = range(index % item.of.sublayers, len(item.sources), item.of.sublayers)
        # ``lower`` counts up from the lowest layer, in steps of the sub-layers of a layer.
        for number in (index, *lower):
            candidate = f"{item.stem}.{number}{item.rest}"
            if candidate in present:
                return candidate
        return None

    def starts_as_built(self, deep: nn.Module) -> list[str]:
        """Return what new layers do not copy with ``init`` zero: the ends of branches, and their weights."""
        names: list[str] = []
        if not self._is_zero:
            return names
        for layer, stem in _new_layers_of(deep, self._sides):
            for end in layer.branch_ends:
                names += [f"{stem}.{end}.{name}" for name, _ in layer.get_submodule(end).named_parameters()]
            names += [f"{stem}.{name}" for name in getattr(layer, "branch_weights", ())]
        return names


def _map_parameters(stacks: _GrownStacks, deep: nn.Module, present: Mapping[str, Tensor]) -> ParameterMap:
    built = deep.state_dict()
    sources: dict[str, str | None] = {}
    places: dict[str, Places] = {}
    new: list[str] = []
    first_names: dict[str, str] = {}
    of_memory: dict[int, str] = {}
    for name, value in built.items():
        item = stacks.item(name)
        source = sources[name] = stacks.source(name, present)
        # In a state dict, tied parameters share memory.
        first_names[name] = of_memory.setdefault(value.data_ptr(), name)
        if item is None:
            # Belongs to no layer, such as the embedding.
            is_new = name not in present
        else:
            # A list item that is a vector of weights, one for the embedding and one for each layer or block below.
            if item.of.weighs and source is not None:
                places[name] = _moved_weights(item, value.numel(), present[source].numel())
            is_new = item.is_new or None in places.get(name, ())
        if is_new:
            new.append(name)
    # With zero, ends of new branches count as new and are not copied.
    for name in stacks.starts_as_built(deep):
        sources[name] = None
    values_as_built = {name: built[name] for name, source in sources.items() if source is None}
    return ParameterMap(sources, places, first_names, values_as_built, tuple(new))


def _new_layers_of(deep: nn.Module, sources: SourcesOfSides) -> Iterator[tuple[Any, str]]:
    """Yield each new layer of a deep model, and the name that its parameters begin with."""
    for side, layers in sources.items():
        for index in sorted(new_layers(layers)):
            yield getattr(deep, side).layers[index], f"{side}.layers.{index}"


def _depth(sources: Sequence[int | None]) -> int:
    """Return the depth of the shallow stack, all of whose layers are in the deep one."""
    return 1 + max(layer for layer in sources if layer is not None)


def _moved_weights(item: _Item, count: int, present: int) -> Places:
    """Return, for each of ``count`` weights, which of ``present`` weights it takes; None for a layer without one."""
    step = item.of.step
    # Weight j + 1 weighs the j-th group of ``step`` layers, represented by the source of its top layer.
    tops = item.sources[step - 1 :: step][: count - 1]
    below = [None if top is None else top // step for top in tops]
    nearest = max if item.is_new else min
    weights: list[int | None] = [0, *[None] * (count - 1)]  # the first is the embedding's
    for layer in range(present - 1):
        # Of several copies of a layer, an old layer reads the old one, which is the lowest; a new layer the nearest.
        copies = [place for place, source in enumerate(below) if source == layer]
        weights[1 + nearest(copies)] = 1 + layer
    return weights
