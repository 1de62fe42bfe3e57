"""Making a model deeper where it stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fairseq_depthwise.growth.parameter_sources import SourcesOfSides, parameter_sources, take_sources

_RANDOM = {
    torch.Tensor.uniform_,
    torch.Tensor.normal_,
    nn.init.uniform_,
    nn.init.normal_,
    nn.init.xavier_uniform_,
    nn.init.xavier_normal_,
    nn.init.kaiming_uniform_,
    nn.init.kaiming_normal_,
}


class WithoutRandomValues(TorchFunctionMode):
    """Inside it, modules are built without drawing their random first values, which is most of the time of building.

    Constants (the 1 and 0 of layer norms, the rows of a block connection) are set as always. The random generator is
    not touched.
    """

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if function in _RANDOM:
            return args[0] if args else kwargs["tensor"]
        return function(*args, **kwargs)


def grow_model(
    model: nn.Module, build: Callable[[], nn.Module], sources: SourcesOfSides, block_size: int = 0
) -> dict[str, str | None]:
    """Make ``model``, an encoder-decoder, as deep as what ``build`` returns, and give it its own parameters.

    The object stays the same, so that whoever holds it decodes and trains the deep model; its encoder and its decoder
    are replaced. Type, device and mode stay.

    Args:
        model: the shallow model.
        build: makes a deep model on the current default device; its random values are not used.
        sources: for each side that grows, the source layer of each layer.
        block_size: layers in a connected block of a side that grows; 0 without block connections.

    Returns:
        from which parameter each of the deep model's was taken; None for a new one.
    """
    some = next(model.parameters())
    with some.device, _default_dtype(some.dtype), WithoutRandomValues():
        grown = build().to(some)
    values = model.state_dict()
    names = parameter_sources(grown.state_dict(), values, sources, block_size)
    _take_over(grown, take_sources(values, names))
    # Tables that no checkpoint keeps: another device would compute slightly other positions.
    tables = dict(model.named_buffers())
    for name, source in parameter_sources(dict(grown.named_buffers()), tables, sources, block_size).items():
        if source is not None:
            grown.get_buffer(name).data = tables[source].clone()
    grown.train(model.training)
    for side in ("encoder", "decoder"):
        setattr(model, side, getattr(grown, side))
    return names


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _take_over(model: nn.Module, values: Mapping[str, Tensor]) -> None:
    """As :func:`fill`, but a parameter takes the memory of its value; only the second one to take it gets a copy."""
    taken = set()
    for name, parameter in model.named_parameters():
        value = values.get(name)
        if value is None:
            continue
        if value.shape != parameter.shape:
            raise _misfit(name, value, parameter)
        if value.data_ptr() in taken:
            value = value.clone()
        taken.add(value.data_ptr())
        parameter.data = value
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    fill(model, {name: value for name, value in values.items() if name not in parameters})


def fill(model: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Copy values into a model's parameters and buffers; those without a value stay as they are.

    Raises:
        ValueError: a value has another shape, or belongs to no parameter.
    """
    own = model.state_dict()
    with torch.no_grad():
        for name, value in values.items():
            if name not in own or own[name].shape != value.shape:
                raise _misfit(name, value, own.get(name))
            own[name].copy_(value)


def _misfit(name: str, value: Tensor, own: Tensor | None) -> ValueError:
    wanted = "in the model" if own is None else tuple(own.shape)
    return ValueError(f"{name} does not fit: {tuple(value.shape)}, not {wanted}")
