"""Progress of long work, on stderr: a bar for people, some lines for log files."""

from __future__ import annotations

import sys
from typing import Any

from tqdm import tqdm


class Progress:
    """Called with how much is done, and of how much.

    Args:
        unit: what is counted, in the plural.
        title: what is being done; nothing where it was said before.
        lines: how many lines of a log file, at most; 0 leaves it to what is said of each result.
    """

    def __init__(self, unit: str, title: str = "", *, lines: int = 10) -> None:
        self.unit = unit
        self.title = title
        self.lines = lines
        self._bar: Any = None
        self._said = 0

    def __call__(self, done: int, total: int) -> None:
        if sys.stderr.isatty():
            self._move_bar(done, total)
            return
        if (reached := done * self.lines // total) > self._said:
            self._said = 0 if done == total else reached  # the next work of the kind begins anew
            print(f"  {self.title + ': ' if self.title else ''}{done:,} of {total:,} {self.unit}", file=sys.stderr)

    def _move_bar(self, done: int, total: int) -> None:
        if self._bar is None:
            self._bar = tqdm(total=total, unit=f" {self.unit}", desc=self.title or None, leave=False, file=sys.stderr)
        self._bar.update(done - self._bar.n)
        if done == total:
            self._bar.close()
            self._bar = None
