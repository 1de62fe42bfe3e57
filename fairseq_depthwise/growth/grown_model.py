"""Making a model deeper where it stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fairseq_compat import UserError
from fairseq_depthwise.growth.layer_sources import new_layers
from fairseq_depthwise.growth.parameter_sources import SourcesOfSides, apply_parameter_map, parameter_sources

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
    block_size: int = 0,
    *,
    init: str = "copy",
    seed: int = 1,
) -> dict[str, str | None]:
    """Make ``model``, an encoder-decoder, as deep as what ``build`` returns, and give it its own parameters.

    The object stays the same, so that whoever holds it decodes and trains the deep model; its encoder and its decoder
    are replaced. Type, device and mode stay.

    Args:
        model: the shallow model.
        build: makes a deep model on the current default device.
        sources: for each side that grows, the source layer of each layer.
        block_size: layers in a connected block of a side that grows; 0 without block connections.
        init: one of ``layer_sources.INITS``.
        seed: of the random values of new layers, which are those of a new model, drawn on the CPU in float32.

    Returns:
        from which parameter each of the deep model's was taken; None for a new one.
    """
    some = next(model.parameters())
    with building(sources, seed, some):
        grown = build().to(some)
    values = model.state_dict()
    names = parameter_sources(grown.state_dict(), values, sources, block_size)
    if init == "zero":
        names.update(dict.fromkeys(start_at_identity(grown, sources)))
    _take_over(grown, apply_parameter_map(values, names))
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


def start_at_identity(model: nn.Module, sources: SourcesOfSides) -> list[str]:
    """Let the new layers of a grown model, as it was built, pass on what they read.

    Returns:
        the names of the parameters that are not copied for that: what ends a residual branch, which is set to 0, and
        what weighs branches, which stays as it was built.

    Raises:
        UserError: the layers are not made of residual branches.
    """
    names = []
    for side, layers in sources.items():
        stack: nn.ModuleList = getattr(model, side).layers
        require_identity(stack[0])
        for index in sorted(new_layers(layers)):
            layer: Any = stack[index]
            stem = f"{side}.layers.{index}"
            for end in layer.branch_ends:
                for name, parameter in layer.get_submodule(end).named_parameters():
                    nn.init.zeros_(parameter)
                    names.append(f"{stem}.{end}.{name}")
            names.extend(f"{stem}.{name}" for name in getattr(layer, "branch_weights", ()))
    return names


def require_identity(layer: nn.Module) -> None:
    """Raise :class:`UserError` unless a layer of this kind can start by passing on what it reads."""
    if not hasattr(layer, "branch_ends"):
        raise UserError(
            "zero cannot be how new layers start (--growth-init, --init of grow): the layers of this model have no "
            "residual branches whose output could be 0 at first; take copy or random"
        )


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _take_over(model: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Fill a model as :func:`fill`, but take over the memory of values; only a second parameter gets a copy."""
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
