"""Tools for patches: the decorators that register one or replace a function, and stand-ins for modules."""

from __future__ import annotations

import functools
import inspect
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

#: All patches, in the order in which those of a module are applied.
PATCHES: list[Patch] = []


@dataclass(frozen=True)
class Patch:
    """A function that changes a module of fairseq.

    Attributes:
        change: called with the module after it was executed; of a generator, what is before its ``yield`` runs before.
        modules: that it is for.
        mentioned: it is also for every module whose source has this word.
        function: a function or a method of the module. ``change`` takes its place, with the original as first argument.
        before: a function or a method of the module. ``change`` is called before it, with the arguments that it names.
    """

    change: Callable[..., Any]
    modules: tuple[str, ...]
    mentioned: str | None
    function: str = ""
    before: str = ""

    @property
    def fault(self) -> str:
        """What is wrong without it: the first paragraph of its docstring."""
        return " ".join((self.change.__doc__ or "").partition("\n\n")[0].split())

    @contextmanager
    def around(self, module: ModuleType) -> Iterator[None]:
        if self.function or self.before:
            yield
            *classes, name = (self.function or self.before).split(".")
            owner = functools.reduce(getattr, classes, module)
            replaces(owner, name)(self.change if self.function else _called_before(self.change))
        elif inspect.isgeneratorfunction(self.change):
            with contextmanager(self.change)(module):
                yield
        else:
            yield
            self.change(module)


def patch(
    *modules: str, mentioned: str | None = None, function: str = "", before: str = ""
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function as the last patch of these modules; see :class:`Patch`."""

    def register(change: Callable[..., Any]) -> Callable[..., Any]:
        PATCHES.append(Patch(change, modules, mentioned, function, before))
        return change

    return register


def _called_before(check: Callable[..., Any]) -> Callable[..., Any]:
    """Return what takes a function's place and calls ``check`` first, with those arguments that it names."""
    names = inspect.signature(check).parameters

    def checked(original: Any, *args: Any, **kwargs: Any) -> Any:
        call = inspect.signature(original).bind(*args, **kwargs)
        call.apply_defaults()
        check(**{name: call.arguments[name] for name in names})
        return original(*args, **kwargs)

    return checked


def replaces(owner: Any, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Put the decorated function in the place of a function of ``owner``, with the original as its first argument."""

    def put(function: Callable[..., Any]) -> Callable[..., Any]:
        attribute = vars(owner)[name] if name in vars(owner) else getattr(owner, name)
        is_classmethod = isinstance(attribute, classmethod)
        original = attribute.__func__ if is_classmethod else attribute

        @functools.wraps(original)
        def replaced(*args: Any, **kwargs: Any) -> Any:
            return function(original, *args, **kwargs)

        setattr(owner, name, classmethod(replaced) if is_classmethod else replaced)
        return function

    return put


def as_configuration(cfg: Any) -> Any:
    """Return fairseq's configuration for the argument of a command's ``main``, which may be a namespace."""
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    return convert_namespace_to_omegaconf(cfg) if isinstance(cfg, Namespace) else cfg


class Overlay(ModuleType):
    """Stands in for ``module`` inside one other module's globals.

    ``checkpoint_utils.torch = Overlay(torch, load=safe_load)`` changes ``torch.load`` for the code of that module
    only; ``torch`` itself stays as it is for everyone else.
    """

    def __init__(self, module: ModuleType, **replaced: Any) -> None:
        super().__init__(module.__name__, module.__doc__)
        vars(self).update(replaced, _overlaid_module=module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_overlaid_module"], name)
