"""What patches are made with: the decorator that registers one, and what they replace names with."""

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
        function: a function or a method of the module, in whose place ``change`` is put; it is given that one first.
    """

    change: Callable[..., Any]
    modules: tuple[str, ...]
    mentioned: str | None
    function: str = ""

    @property
    def fault(self) -> str:
        """What is wrong without it: the first paragraph of its docstring."""
        return " ".join((self.change.__doc__ or "").partition("\n\n")[0].split())

    @contextmanager
    def around(self, module: ModuleType) -> Iterator[None]:
        if self.function:
            yield
            *classes, name = self.function.split(".")
            replaces(functools.reduce(getattr, classes, module), name)(self.change)
        elif inspect.isgeneratorfunction(self.change):
            with contextmanager(self.change)(module):
                yield
        else:
            yield
            self.change(module)


def patch(
    *modules: str, mentioned: str | None = None, function: str = ""
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function as the last patch of these modules."""

    def register(change: Callable[..., Any]) -> Callable[..., Any]:
        PATCHES.append(Patch(change, modules, mentioned, function))
        return change

    return register


def replaces(owner: Any, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Put the decorated function in the place of a function of ``owner``, which it is given as its first argument."""

    def put(function: Callable[..., Any]) -> Callable[..., Any]:
        held = vars(owner)[name] if name in vars(owner) else getattr(owner, name)
        original = held.__func__ if isinstance(held, classmethod) else held

        @functools.wraps(original)
        def replaced(*args: Any, **kwargs: Any) -> Any:
            return function(original, *args, **kwargs)

        setattr(owner, name, classmethod(replaced) if isinstance(held, classmethod) else replaced)
        return function

    return put


def as_configuration(cfg: Any) -> Any:
    """Return what the ``main`` of a command is given as fairseq's configuration."""
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
