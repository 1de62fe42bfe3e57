"""What ``make setup`` asks first: one sentence when the interpreter, its headers or a compiler are not right."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "check_setup.py"


def check(*arguments: object, before: str = "pass", path: str = os.environ["PATH"]) -> str:
    """Run the script and return what it objects to; ``before`` is Python code that changes what it sees."""
    program = f"import runpy, sys, sysconfig; {before}; runpy.run_path({str(SCRIPT)!r}, {{}}, '__main__')"
    command = [sys.executable, "-c", program, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PATH": path}, check=False)
    assert result.returncode == bool(result.stderr)
    return result.stderr


@pytest.mark.parametrize("version", [(3, 9, 1), (3, 14, 0)])
def test_unsupported_interpreters(version: tuple[int, int, int], tmp_path: Path) -> None:
    assert f"is Python 3.{version[1]}" in check(tmp_path, before=f"sys.version_info = {version}")


def test_missing_headers_and_compiler(tmp_path: Path) -> None:
    headers = f"sysconfig.get_paths = lambda: {{'include': {str(tmp_path)!r}}}"
    assert "install python3." in check(tmp_path, before=headers)
    assert "install g++" in check(tmp_path, path=str(tmp_path))
