"""What the tests of ``fairseq_compat`` share: fresh interpreters and stock checkpoints."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

WORDS = ("a", "b", "c", "d")


def _run_python(
    code: str, *arguments: object, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], env={**os.environ, **(env or {})}, capture_output=True,
        text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.fixture(scope="session")
def run_python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """``run_python(code, *arguments, env=None)`` runs ``code`` in a fresh interpreter."""
    return _run_python


@pytest.fixture(scope="session")
def stock_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with nothing but the two dictionaries."""
    folder = tmp_path_factory.mktemp("stock_data")
    for language in ("src", "tgt"):
        lines = "".join(f"{word} {count}\n" for count, word in zip((9, 8, 7, 6), WORDS, strict=True))
        (folder / f"dict.{language}.txt").write_text(lines, encoding="utf-8")
    return folder
