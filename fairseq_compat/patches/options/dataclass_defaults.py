"""Python 3.11 and newer refuse the configuration classes' defaults (``mutable default ... use default_factory``).

``dataclasses`` takes a default for mutable when its class has no ``__hash__``, and a dataclass with ``__eq__`` has
none. While the listed modules execute, their own dataclasses keep ``object.__hash__``. Rewriting the defaults as
``default_factory`` is no way out: ``fairseq.dataclass.initialize.hydra_init`` reads each field's ``.default``.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any


def adjust(module: ModuleType) -> Iterator[None]:
    if sys.version_info < (3, 11) or _is_fixed_hydra(module):
        yield
        return
    original = dataclasses.dataclass

    def dataclass(cls: type | None = None, /, **options: Any) -> Any:
        if cls is None:
            return lambda decorated: dataclass(decorated, **options)
        made = original(cls, **options)
        if made.__module__ == module.__name__ and made.__hash__ is None:
            made.__hash__ = object.__hash__
        return made

    patched: Callable[..., Any] = dataclass
    dataclasses.dataclass = patched
    try:
        yield
    finally:
        # Modules that this one imported for the first time may have taken the stand-in by name; it is not for them.
        for imported in list(sys.modules.values()):
            if imported is not module and getattr(imported, "__dict__", {}).get("dataclass") is patched:
                imported.dataclass = original
        dataclasses.dataclass = original


def _is_fixed_hydra(module: ModuleType) -> bool:
    """Return whether hydra is 1.3 or newer; hydra 1.0 has the same fault."""
    if module.__name__ != "hydra.conf":
        return False
    version = getattr(sys.modules["hydra"], "__version__", "1.0")
    return tuple(int(part) for part in version.split(".")[:2]) >= (1, 3)
