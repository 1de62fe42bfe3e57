"""An optimizer's state for each parameter, by the parameter's name, so that copies of a parameter can take it along.

fairseq's optimizers keep this state in three ways: for the model's own parameters (float32, and the memory-efficient
half precisions), for a float32 master of each parameter (bf16), or for one flat float32 vector of all (fp16).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from fairseq.optim import FairseqOptimizer
from torch import Tensor, nn

from fairseq_depthwise.growth.parameter_map import ParameterMap


class ParameterMoments(NamedTuple):
    """An optimizer's state for a parameter: tensors of its shape, numbers, and in half precision its float32 master."""

    state: dict[str, Any]
    master: Tensor | None


class _Place(NamedTuple):
    """Where a parameter is: the tensor that the optimizer updates, and which of its elements."""

    parameter: Tensor
    updated: Tensor
    span: slice | None = None

    def part(self, whole: Tensor) -> Tensor:
        """Return the parameter's part, a view, of a tensor shaped like the one that is updated."""
        return whole if self.span is None else whole[self.span].view(self.parameter.shape)


def moments_of(optimizer: FairseqOptimizer, model: nn.Module) -> dict[str, ParameterMoments]:
    """Return the optimizer's state for each of the model's parameters, under all names of the parameter."""
    result: dict[str, ParameterMoments] = {}
    for name, place in _places(optimizer, model):
        state = {}
        for key, value in optimizer.optimizer.state.get(place.updated, {}).items():
            # Other values are step counters, as tensors or as numbers.
            is_of_parameter = torch.is_tensor(value) and value.shape == place.updated.shape
            state[key] = place.part(value) if is_of_parameter else value
        master = None if place.updated is place.parameter else place.part(place.updated.detach())
        result[name] = ParameterMoments(state, master)
    return result


@torch.no_grad()
def give_moments(
    optimizer: FairseqOptimizer,
    model: nn.Module,
    moments: Mapping[str, ParameterMoments],
    parameter_map: ParameterMap,
) -> None:
    """Give the fresh optimizer of a grown model the moments of the shallow model's; new parameters get none."""
    for name, place in _places(optimizer, model):
        source = parameter_map.sources[name]
        if source is None or source not in moments:
            continue
        state, master = moments[source]
        optimizer_state = optimizer.optimizer.state[place.updated]
        for key, value in state.items():
            if not torch.is_tensor(value):
                optimizer_state[key] = value
                continue
            # In a vector that weighs layers, moments move with their weights.
            value = parameter_map.part(name, value)
            if value.shape != place.parameter.shape:
                optimizer_state[key] = value.clone()
            else:
                # Each parameter fills its part of a flat vector; parts of new parameters stay 0.
                whole = optimizer_state.setdefault(key, torch.zeros_like(place.updated, dtype=value.dtype))
                place.part(whole).copy_(value)
        if master is not None:
            place.part(place.updated).copy_(parameter_map.part(name, master))


def _places(optimizer: FairseqOptimizer, model: nn.Module) -> Iterator[tuple[str, _Place]]:
    """Yield each name of each parameter that the optimizer has, and where it is."""
    places = {id(place.parameter): place for place in _places_in(optimizer)}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if id(parameter) in places:
            yield name, places[id(parameter)]


def _places_in(optimizer: FairseqOptimizer) -> Iterator[_Place]:
    masters: Any = getattr(optimizer, "fp32_params", None)
    if masters is None:
        # float32, or a memory-efficient half precision: the optimizer updates the model's own parameters.
        for parameter in optimizer.params:
            yield _Place(parameter, parameter)
    elif optimizer.has_flat_params:
        # fairseq keeps one flat vector per device, and a process has one device.
        flat: Tensor = masters if torch.is_tensor(masters) else next(iter(masters.values()))
        # fp16: the masters of all parameters, one after another.
        offset = 0
        for half in optimizer.fp16_params:
            yield _Place(half, flat, slice(offset, offset + half.numel()))
            offset += half.numel()
    else:
        # bf16: a float32 master of each parameter.
        yield from map(_Place, optimizer.fp16_params, masters)
