"""What an optimizer knows of each parameter, by the parameter's name, so that it can follow a parameter that is copied.

fairseq's optimizers keep it in three ways: beside the model's own parameters (float32, and the memory-efficient half
precisions), beside a float32 master of each (bf16), or beside one flat float32 vector of all (fp16).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from fairseq.optim import FairseqOptimizer
from torch import Tensor, nn

from fairseq_depthwise.growth.parameter_sources import Growth


class ParameterMoments(NamedTuple):
    """One parameter's part of an optimizer.

    Attributes:
        state: what the optimizer keeps: tensors of the parameter's shape (Adam's moments), and numbers (its steps).
        master: the float32 value that half-precision training updates; None where the parameter itself is updated.
    """

    state: dict[str, Any]
    master: Tensor | None


class _Place(NamedTuple):
    """Where a parameter's part is: the tensor that the optimizer updates, and which of its elements."""

    name: str
    parameter: Tensor
    updated: Tensor
    span: slice | None


def moments_of(optimizer: FairseqOptimizer, model: nn.Module) -> dict[str, ParameterMoments]:
    """Return what the optimizer knows of each of the model's parameters, under all its names."""
    result: dict[str, ParameterMoments] = {}
    for place in _places(optimizer, model):
        state = {
            key: _part(value, place) if torch.is_tensor(value) and value.shape == place.updated.shape else value
            for key, value in optimizer.optimizer.state.get(place.updated, {}).items()
        }
        master = None if place.updated is place.parameter else _part(place.updated.detach(), place)
        result[place.name] = ParameterMoments(state, master)
    return result


def give_moments(
    optimizer: FairseqOptimizer,
    model: nn.Module,
    moments: Mapping[str, ParameterMoments],
    growth: Growth,
) -> None:
    """Let a fresh optimizer of a grown model go on where that of the shallow one was.

    Args:
        optimizer: has not taken a step.
        model: the grown model.
        moments: what the shallow model's optimizer knew. Their memory is taken over: that optimizer has ended.
        growth: of the model; what it takes from nowhere starts without moments.
    """
    taken: set[int] = set()

    def own_memory(value: Tensor) -> Tensor:
        """Return the value itself to the first who takes it, as there may be gigabytes, and copies to the others."""
        if value.data_ptr() in taken:
            return value.clone()
        taken.add(value.data_ptr())
        return value

    served: set[tuple[int, int]] = set()  # tied parameters have several names, and one place
    with torch.no_grad():
        for place in _places(optimizer, model):
            spot = (id(place.updated), 0 if place.span is None else place.span.start)
            source = growth[place.name]
            if spot in served or source is None or source not in moments:
                continue
            served.add(spot)
            known = moments[source]
            own = optimizer.optimizer.state[place.updated]
            for key, value in known.state.items():
                if not torch.is_tensor(value):
                    own[key] = value
                    continue
                value = growth.part(place.name, value)
                if place.span is None or value.shape != place.parameter.shape:
                    own[key] = own_memory(value)
                else:
                    whole = own.setdefault(key, torch.zeros_like(place.updated))
                    whole[place.span] = value.reshape(-1)
            if known.master is None:
                continue
            master = growth.part(place.name, known.master)
            if place.span is None:
                place.updated.data = own_memory(master)
            else:
                place.updated[place.span] = master.reshape(-1)


def _places(optimizer: FairseqOptimizer, model: nn.Module) -> Iterator[_Place]:
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    for of_model, updated, span in _updated(optimizer):
        for name in names.get(id(of_model), ()):
            yield _Place(name, of_model, updated, span)


def _updated(optimizer: FairseqOptimizer) -> Iterator[tuple[Tensor, Tensor, slice | None]]:
    """Yield each parameter of the model, the tensor updated in its place, and which elements of that tensor."""
    masters: Any = getattr(optimizer, "fp32_params", None)
    if masters is None:
        for parameter in optimizer.params:
            yield parameter, parameter, None
    elif optimizer.has_flat_params:
        flat: Tensor = masters if torch.is_tensor(masters) else next(iter(masters.values()))
        offset = 0
        for half in optimizer.fp16_params:
            yield half, flat, slice(offset, offset + half.numel())
            offset += half.numel()
    else:
        yield from ((half, master, None) for half, master in zip(optimizer.fp16_params, masters, strict=True))


def _part(tensor: Tensor, place: _Place) -> Tensor:
    return tensor if place.span is None else tensor[place.span].view(place.parameter.shape)
