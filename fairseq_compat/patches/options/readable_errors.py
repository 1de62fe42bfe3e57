"""A wrong path or option ends in a page of traceback.

The entry points of fairseq's commands print one sentence for a mistake that the user can fix (see
:mod:`fairseq_compat.explanations`) and end with status 1. Everything else keeps its traceback. Set the environment
variable ``FAIRSEQ_COMPAT_TRACEBACK=1`` to see it always.
"""

import functools
import os
import sys
from collections.abc import Iterator
from typing import Any

from fairseq_compat.commands.run import open_closed_streams, run_command

#: Modules of commands whose results are files.
_WRITE_FILES = ("train", "hydra_train", "preprocess")


def adjust(module: Any) -> Iterator[None]:
    open_closed_streams()  # before the module sets up logging
    yield

    original = module.cli_main
    name = module.__name__.rpartition(".")[2]

    @functools.wraps(original)
    def cli_main(*args: Any, **kwargs: Any) -> Any:
        # hydra would print an abridged traceback and exit by itself; with this it lets the exception through.
        os.environ.setdefault("HYDRA_FULL_ERROR", "1")
        command = "fairseq-" + name.replace("_", "-")
        results: list[Any] = []  # they are no status

        def run() -> None:
            results.append(original(*args, **kwargs))

        if status := run_command(command, run, prints_results=name not in _WRITE_FILES):
            sys.exit(status)
        return results[0]

    module.cli_main = cli_main
