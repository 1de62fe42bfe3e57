"""Whatever goes wrong ends in a page of traceback.

Here fairseq's commands end as ours do (:mod:`fairseq_compat.commands.run`): one sentence, and status 1. The traceback
of an error that nobody expects is kept in a file; ``--traceback`` prints it.
"""

import functools
import os
import sys
from collections.abc import Iterator
from typing import Any

from fairseq_compat.commands.run import open_closed_streams, run_command, without_traceback_option

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
        sys.argv[1:] = without_traceback_option(sys.argv[1:])
        command = "fairseq-" + name.replace("_", "-")
        results: list[Any] = []  # they are no status

        def run() -> None:
            results.append(original(*args, **kwargs))

        if status := run_command(command, run, prints_results=name not in _WRITE_FILES):
            sys.exit(status)
        return results[0]

    module.cli_main = cli_main
