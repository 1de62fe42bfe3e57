"""A module seen through a film: some names replaced, all others as they are."""

from __future__ import annotations

from types import ModuleType
from typing import Any


class Overlay(ModuleType):
    """Stands in for ``module`` inside one other module's globals.

    ``checkpoint_utils.torch = Overlay(torch, load=safe_load)`` changes ``torch.load`` for the code of that module
    only; ``torch`` itself stays as it is for everyone else.
    """

    def __init__(self, module: ModuleType, **replaced: Any) -> None:
        super().__init__(module.__name__, module.__doc__)
        self.__dict__["_overlaid_module"] = module
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_overlaid_module"], name)
