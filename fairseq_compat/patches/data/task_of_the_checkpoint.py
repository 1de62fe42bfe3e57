"""``fairseq-validate`` without ``--task`` stops with ``KeyError: None``.

It has no default as the other commands have; the task is then that of the checkpoint's training.
"""

import argparse
import functools
import sys
from collections.abc import Iterator
from typing import Any

from fairseq_compat.patching import Overlay


def adjust(module: Any) -> Iterator[None]:
    yield

    from fairseq_compat import UserError, checkpoints

    original = module.cli_main
    of_fairseq = module.options

    @functools.wraps(original)
    def cli_main() -> None:
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument("--task")
        parser.add_argument("--path")
        given, _ = parser.parse_known_args()
        if given.task is None and not {"-h", "--help"} & set(sys.argv):
            if given.path is None:
                raise UserError("--path is missing; give the checkpoint to validate")
            options = checkpoints.options_in(checkpoints.load_checkpoint(given.path, mapped=True), "task")
            task = options.get("_name") or options.get("task")
            module.options = Overlay(
                of_fairseq, get_validation_parser=functools.partial(of_fairseq.get_validation_parser, task)
            )
        original()

    module.cli_main = cli_main
