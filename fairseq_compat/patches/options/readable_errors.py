"""A wrong path or option ends in a page of traceback.

The entry points of fairseq's commands print one sentence for a mistake that the user can mend (see
:mod:`fairseq_compat.explanations`) and end with status 1. Everything else keeps its traceback. Set the environment
variable ``FAIRSEQ_COMPAT_TRACEBACK=1`` to see it always.
"""

import functools
import os
import sys
from collections.abc import Iterator
from typing import Any


def adjust(module: Any) -> Iterator[None]:
    yield

    # Now, as a module cannot be imported where no more files may be open.
    from fairseq_compat.explanations import explain

    original = module.cli_main
    command = "fairseq-" + module.__name__.rpartition(".")[2].replace("_", "-")

    @functools.wraps(original)
    def cli_main(*args: Any, **kwargs: Any) -> Any:
        # hydra would print an abridged traceback and exit by itself; with this it lets the exception through.
        os.environ.setdefault("HYDRA_FULL_ERROR", "1")
        try:
            return original(*args, **kwargs)
        except Exception as error:
            sentence = explain(error)
            if sentence is None or os.environ.get("FAIRSEQ_COMPAT_TRACEBACK"):
                raise
            print(f"{command}: error: {sentence}", file=sys.stderr)
            sys.exit(1)

    module.cli_main = cli_main
