"""What every step of a recipe has in common: its errors are one sentence, and Ctrl-C ends it quietly."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from fairseq_compat import UserError
from fairseq_compat.commands.run import run_command


def run_step(step: Callable[[], object]) -> None:
    """Run ``step`` and exit as every command does: 0, or 1 after one sentence, or 130 for Ctrl-C."""
    sys.exit(run_command(Path(sys.argv[0]).stem, step))


def whole_number(environment: Mapping[str, str], name: str, default: int, lowest: int = 1) -> int:
    """Return a setting of the environment.

    Raises:
        UserError: it is something else, or less than ``lowest``.
    """
    text = environment.get(name) or str(default)
    if not text.isdecimal() or int(text) < lowest:
        raise UserError(f"{name}={text} is not a whole number of at least {lowest}")
    return int(text)


def say(sentence: str) -> None:
    """Print progress to stderr; stdout is for results."""
    print(sentence, file=sys.stderr, flush=True)
