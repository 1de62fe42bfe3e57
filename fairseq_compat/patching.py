"""Tools for patches: decorators that register a patch or replace a function, and overlays for modules."""

from __future__ import annotations

import functools
import inspect
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

#: All registered patches; those of one module are applied in this order.
PATCHES: list[Patch] = []


@dataclass(frozen=True)
class Patch:
    """A function that changes a module of fairseq.

    Attributes:
        change: called with the module after its import. A generator function runs up to its ``yield`` before the
            import. With ``function`` or ``before`` it is called with other arguments, see there.
        modules: the names of the modules to patch.
        mentioned: patch also every fairseq module whose source contains this string.
        function: the name of a function, or ``Class.method``, to replace: its calls become
            ``change(original, *args, **kwargs)``.
        before: the name of a function, or ``Class.method``, to check: ``change`` is called first, with those of the
            call's arguments that are parameters of ``change``.
    """

    change: Callable[..., Any]
    modules: tuple[str, ...]
    mentioned: str | None
    function: str = ""
    before: str = ""

    @property
    def fault(self) -> str:
        """The fault of fairseq that the patch corrects: the first paragraph of its docstring."""
        return " ".join((self.change.__doc__ or "").partition("\n\n")[0].split())

    @contextmanager
    def applied_to(self, module: ModuleType) -> Iterator[None]:
        """Apply the patch to a module that is executed inside this context."""
        if self.function or self.before:
            yield
            # The owner of "Class.method" is the class, and that of "function" the module.
            *classes, name = (self.function or self.before).split(".")
            owner = functools.reduce(getattr, classes, module)
            replaces(owner, name)(self.change if self.function else _with_check(self.change))
        elif inspect.isgeneratorfunction(self.change):
            # Such a patch changes what the module imports, and restores it afterwards.
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


def _with_check(check: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement that calls ``check`` with the arguments it declares, then the original."""
    names = inspect.signature(check).parameters

    def checked(original: Any, *args: Any, **kwargs: Any) -> Any:
        call = inspect.signature(original).bind(*args, **kwargs)
        call.apply_defaults()  # also arguments that the caller leaves out
        check(**{name: call.arguments[name] for name in names})
        return original(*args, **kwargs)

    return checked


def replaces(owner: Any, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Replace ``owner.name`` by the decorated function, which gets the original as its first argument."""

    def put(function: Callable[..., Any]) -> Callable[..., Any]:
        # vars() returns a classmethod as such; getattr would bind it. An inherited method is not in vars().
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
    """Return the argument of a command's ``main`` as fairseq's configuration; it may be a namespace."""
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    return convert_namespace_to_omegaconf(cfg) if isinstance(cfg, Namespace) else cfg


class Overlay(ModuleType):
    """A copy of ``module`` with some names replaced, for the globals of one other module.

    ``checkpoint_utils.torch = Overlay(torch, load=safe_load)`` changes ``torch.load`` only for the code of that module;
    ``torch`` itself is unchanged.
    """

    def __init__(self, module: ModuleType, **replaced: Any) -> None:
        super().__init__(module.__name__, module.__doc__)
        vars(self).update(replaced, _overlaid_module=module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_overlaid_module"], name)
