"""What a training cannot do is said before it reads or writes anything."""

from __future__ import annotations

import functools
from argparse import Namespace
from collections.abc import Callable
from typing import Any


def check_before_training(module: Any, check: Callable[[Any], None]) -> None:
    """Let ``fairseq_cli.train`` call ``check`` with the configuration first, in every process of a training."""
    original = module.main

    @functools.wraps(original)
    def main(cfg: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(cfg, Namespace):
            cfg = module.convert_namespace_to_omegaconf(cfg)
        check(cfg)
        return original(cfg, *args, **kwargs)

    module.main = main
