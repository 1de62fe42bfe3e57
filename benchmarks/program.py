"""What the programs of this folder have in common: progress on stderr, errors of one sentence, files written whole."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairseq_compat import UserError
from fairseq_compat.explanations import explain
from fairseq_compat.files import written_whole
from fairseq_compat.process import keep_freed_memory


def tell(text: str) -> None:
    """A line of progress."""
    print(text, file=sys.stderr, flush=True)


def write_json(path: Path, numbers: Any) -> None:
    with written_whole(path) as file:
        file.write((json.dumps(numbers, indent=1) + "\n").encode())


def run_program(name: str, work: Callable[[], object], *, stopped: str = "stopped") -> int:
    """Do a program's work and return its exit status.

    Args:
        name: of the program, in front of errors.
        work: raises UserError or OSError where the user has something to mend.
        stopped: what is said after Ctrl-C.
    """
    logging.getLogger("fairseq").setLevel(logging.ERROR)  # it has much to say about every model it builds
    keep_freed_memory()  # as every command that computes on a CPU
    try:
        work()
    except (UserError, OSError) as error:
        tell(f"{name}: error: {explain(error) or error}")
        return 1
    except KeyboardInterrupt:
        tell(f"{name}: {stopped}")
        return 130
    return 0
