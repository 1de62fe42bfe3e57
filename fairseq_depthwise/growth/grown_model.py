"""Making a model deeper where it stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fairseq_depthwise.growth.parameter_sources import Growth, SourcesOfSides

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
    model: nn.Module,
    build: Callable[[], nn.Module],
    sources: SourcesOfSides,
    seed: int = 1,
    *,
    init: str = "copy",
) -> Growth:
    """Make ``model``, an encoder-decoder, as deep as what ``build`` returns, and give it its own parameters.

    The object stays the same, so that whoever holds it decodes and trains the deep model; its encoder and its decoder
    are replaced. Type, device and mode stay.

    Args:
        model: the shallow model.
        build: makes a deep model on the current default device.
        sources: for each side that grows, the source layer of each layer.
        seed: of the random values of new layers, which are those of a new model, drawn on the CPU in float32.
        init: one of ``layer_sources.INITS``.

    Returns:
        from which parameter each of the deep model's was taken.
    """
    some = next(model.parameters())
    with building(sources, seed, some):
        grown = build().to(some)
    values = model.state_dict()
    growth = Growth(grown, values, sources, init)
    taken = growth.grow(values)
    for name, parameter in grown.named_parameters():
        if taken[name].shape != parameter.shape:
            raise _misfit(name, taken[name], parameter)
        parameter.data = taken[name]
    # Also tables that no checkpoint keeps: another device would compute slightly other positions.
    tables = dict(model.named_buffers())
    for name, _ in list(grown.named_buffers()):
        source = growth.source(name, tables)
        if source is not None:
            grown.get_buffer(name).data = tables[source].clone()
    grown.train(model.training)
    for side in ("encoder", "decoder"):
        setattr(model, side, getattr(grown, side))
    return growth


@contextmanager
def building(sources: SourcesOfSides, seed: int, like: Tensor | None = None) -> Iterator[None]:
    """Build a deep model within it.

    Where some layer has no source, random values are drawn from ``seed``, on the CPU and in float32 whatever the
    device, and the process's own generator stays where it is. Otherwise none are drawn, and parameters are made
    ``like`` one.
    """
    if any(None in layers for layers in sources.values()):
        with torch.random.fork_rng(devices=[]):
            torch.random.default_generator.manual_seed(seed % 2**63)
            yield
    elif like is None:
        with WithoutRandomValues():
            yield
    else:
        with like.device, _default_dtype(like.dtype), WithoutRandomValues():
            yield


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


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
