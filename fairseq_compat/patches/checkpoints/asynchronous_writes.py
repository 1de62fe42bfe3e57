"""``--write-checkpoints-asynchronously`` without iopath trains nothing, and ends with status 0.

A traceback in the log says so, and a script goes on as if there were a model. Here the option is refused.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from fairseq_compat.errors import UserError
from fairseq_compat.patching import check_before_training


def adjust(module: Any) -> Iterator[None]:
    yield

    def check(cfg: Any) -> None:
        if cfg.checkpoint.write_checkpoints_asynchronously and find_spec("iopath") is None:
            raise UserError(
                "--write-checkpoints-asynchronously needs the package iopath, which is not installed; leave it out"
            )

    check_before_training(module, check)
