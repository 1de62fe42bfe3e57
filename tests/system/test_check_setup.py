"""What ``make setup`` asks first: one sentence when the interpreter, its headers or a compiler are not right."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "check_setup.py"


@pytest.mark.parametrize(
    ("before", "path", "named"),
    [
        ("sys.version_info = (3, 14, 0)", os.environ["PATH"], "is Python 3.14"),
        ("sysconfig.get_paths = lambda: {'include': '/nowhere'}", os.environ["PATH"], "install python3."),
        ("pass", "/nowhere", "install g++"),
    ],
)
def test_refused(before: str, path: str, named: str, tmp_path: Path) -> None:
    """``before`` is Python code that changes what the script sees."""
    program = f"import runpy, sys, sysconfig; {before}; runpy.run_path({str(SCRIPT)!r}, {{}}, '__main__')"
    command = [sys.executable, "-c", program, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PATH": path}, check=False)
    assert result.returncode == 1
    assert named in result.stderr
