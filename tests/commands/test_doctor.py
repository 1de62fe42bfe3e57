"""``fairseq-depthwise doctor``: the table, JSON and status, with nothing wrong and with a problem."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairseq_compat.versions import EXTRAS

PROGRAM = Path(sys.executable).parent / "fairseq-depthwise"


def doctor(*options: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, "doctor", *options], capture_output=True, text=True, timeout=120, env={**os.environ, **(env or {})}
    )


def test_nothing_is_wrong_here(document: Callable[..., Any]) -> None:
    result = doctor("--verbose")
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    assert "well" in lines[0]
    assert not [line for line in lines if line.startswith("WRONG")]
    assert any(line.startswith("ok     plugin ") for line in lines)
    assert "[fairseq.checkpoint_utils]" in result.stdout
    assert "extra  onnx" in result.stdout
    answer = document("doctor")
    assert answer["ok"] is True
    assert set(answer["extras"]) == set(EXTRAS)
    assert all(check["ok"] and not check["fix"] for check in answer["checks"])
    assert {patch["modules"] for patch in answer["patches"]} >= {"fairseq.options", "fairseq.distributed.utils"}


def test_it_answers_where_fairseq_is_missing(tmp_path: Path) -> None:
    """For real, in a process that finds no fairseq, as where a package is half removed."""
    (tmp_path / "sitecustomize.py").write_text(
        "from importlib import metadata\n"
        "real = metadata.version\n"
        "def version(name):\n"
        "    if name == 'fairseq':\n"
        "        raise metadata.PackageNotFoundError(name)\n"
        "    return real(name)\n"
        "metadata.version = version\n",
        encoding="utf-8",
    )
    (tmp_path / "fairseq.py").write_text("raise ModuleNotFoundError(\"No module named 'fairseq'\")\n")
    result = doctor(env={"PYTHONPATH": str(tmp_path)})
    assert result.returncode == 1, result.stderr
    assert "Traceback" not in result.stderr
    lines = result.stdout.splitlines()
    (wrong,) = [number for number, line in enumerate(lines) if line.startswith("WRONG")]
    assert lines[wrong].split(maxsplit=2) == ["WRONG", "fairseq", "not installed"]
    assert "pip install --no-deps fairseq==0.12.2" in lines[wrong + 1]
