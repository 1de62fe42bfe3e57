"""What ``make setup`` asks first: one sentence when the interpreter, its headers or a compiler are not right."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "tools" / "check_setup.py"
VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"


def check(*arguments: object, before: str = "", **environment: str) -> tuple[int, str]:
    """Run the script; ``before`` is Python code that changes what it sees."""
    program = (
        f"import runpy, shutil, sys, sysconfig; {before or 'pass'}; runpy.run_path({str(SCRIPT)!r}, {{}}, '__main__')"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
    return result.returncode, result.stderr.strip()


def fake_venv(folder: Path, version: str) -> Path:
    program = folder / "bin" / "python"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho {version}\n", encoding="utf-8")
    program.chmod(0o755)
    return folder


def test_nothing_is_wrong_here(tmp_path: Path) -> None:
    assert check(tmp_path) == (0, "")
    assert check(fake_venv(tmp_path, VERSION), "--same-python") == (0, "")


def test_another_interpreter_than_that_of_the_environment_is_not_ignored(tmp_path: Path) -> None:
    venv = fake_venv(tmp_path, "3.9")
    assert check(venv) == (0, ""), "only a PYTHON that was asked for contradicts"
    status, sentence = check(venv, "--same-python")
    assert status == 1
    assert f"{venv} is made with Python 3.9, and PYTHON is {VERSION}" in sentence


def test_unsupported_interpreters(tmp_path: Path) -> None:
    for version in ((3, 9, 1), (3, 14, 0)):
        status, sentence = check(tmp_path, before=f"sys.version_info = {version}")
        assert status == 1
        assert f"is Python 3.{version[1]}" in sentence


def test_missing_headers_and_compiler(tmp_path: Path) -> None:
    status, sentence = check(tmp_path, before=f"sysconfig.get_paths = lambda: {{'include': {str(tmp_path)!r}}}")
    assert (status, "install python" in sentence) == (1, True)
    status, sentence = check(tmp_path, PATH=str(tmp_path))
    assert (status, "install g++" in sentence) == (1, True)
