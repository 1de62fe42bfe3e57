"""What several patches use: a module with some names replaced, and checks before a training begins."""

from __future__ import annotations

import functools
from argparse import Namespace
from collections.abc import Callable
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


def check_before_training(module: Any, check: Callable[[Any], None]) -> None:
    """Let the ``main`` of a command, such as ``fairseq_cli.train``, call ``check`` first, in each of its processes."""
    original = module.main

    @functools.wraps(original)
    def main(cfg: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(cfg, Namespace):
            cfg = module.convert_namespace_to_omegaconf(cfg)
        check(cfg)
        return original(cfg, *args, **kwargs)

    module.main = main
