"""Files in TOML, read on every Python that is supported."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from fairseq_compat import UserError

tomllib: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a file; raise UserError if it is not TOML."""
    try:
        content: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} is not in TOML: {error}") from error
    return content
