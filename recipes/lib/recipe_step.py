"""What every step of a recipe has in common: its errors are one sentence, and Ctrl-C ends it quietly."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from fairseq_compat import UserError
from fairseq_compat.errors import mistake


def run_step(step: Callable[[], None]) -> None:
    """Run ``step`` and exit: 0, or 1 after one sentence for what a user can mend, or 130 for Ctrl-C."""
    name = Path(sys.argv[0]).stem
    try:
        step()
    except (UserError, OSError) as error:
        print(f"{name}: error: {mistake(error) or error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print(f"{name}: interrupted; run the same command again to go on", file=sys.stderr)
        sys.exit(130)


def whole_number(environment: Mapping[str, str], name: str, default: int, lowest: int = 1) -> int:
    """Return a setting of the environment.

    Raises:
        UserError: it is something else, or less than ``lowest``.
    """
    text = environment.get(name) or str(default)
    if not text.isdecimal() or int(text) < lowest:
        raise UserError(f"{name}={text} is not a whole number of at least {lowest}")
    return int(text)


def output_name(text: str) -> str:
    """Parse the name of what is written; an empty one would mean hidden files in the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("an empty name; give the name of what is to be written")
    return text


def say(sentence: str) -> None:
    """Print progress to stderr; stdout is for results."""
    print(sentence, file=sys.stderr, flush=True)
