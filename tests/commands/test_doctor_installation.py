"""Each thing that can be wrong with an installation is reported, with its fix."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from fairseq_compat import UserError, versions
from fairseq_compat.versions import SUPPORTED, Supported
from fairseq_depthwise.commands.doctor import Check, diagnose
from fairseq_depthwise.options import require_extra


def install(monkeypatch: pytest.MonkeyPatch, **found: str | None) -> None:
    """Behave as if these versions were installed (None: nothing)."""
    real = versions.installed_version
    monkeypatch.setattr(versions, "installed_version", lambda name: found[name] if name in found else real(name))


def wrong() -> Check:
    (check,) = [check for check in diagnose() if not check.ok]
    return check


@pytest.mark.parametrize(
    ("version", "admitted"),
    [
        ("2.4", True), ("2.4.0", True), ("2.13.0+cpu", True), ("2.13.0a0+git1234", True), ("2.3.9", False),
        ("2.14", False), ("2.14.0.dev2", False), ("10.0", False), ("odd", False),
    ],
)  # fmt: skip
def test_range_is_compared_by_number(version: str, admitted: bool) -> None:
    assert Supported("torch", first="2.4", below="2.14").admits(version) == admitted


@pytest.mark.parametrize(
    ("name", "found", "fix"),
    [
        ("torch", "1.13.1", f"pip install '{SUPPORTED[0].requirement}'"),
        ("torch", None, f"pip install '{SUPPORTED[0].requirement}'"),
        ("fairseq", "1.0.0a0", "pip install --no-deps fairseq==0.12.2"),
        ("fairseq", None, "pip install --no-deps fairseq==0.12.2"), ("python", "3.14.0", "use python>=3.10,<3.14"),
    ],
)  # fmt: skip
def test_other_or_missing_version(name: str, found: str | None, fix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, **{name: found})
    check = wrong()
    assert (check.name, check.state, check.fix) == (name, found or "not installed", fix)
    if name == "fairseq" or found is None:
        assert (versions.fairseq_problem() or "").endswith(fix)


def test_inactive_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    real = subprocess.run
    # -S reads no start-up hooks: what a folder made by `pip install --target` amounts to.
    monkeypatch.setattr(subprocess, "run", lambda command, **rest: real([command[0], "-S", *command[1:]], **rest))
    check = wrong()
    assert (check.name, check.state) == ("start-up hook", "not active")


def test_a_missing_compiled_part(monkeypatch: pytest.MonkeyPatch) -> None:
    importlib.import_module("fairseq.data")
    monkeypatch.setitem(sys.modules, "fairseq.data.token_block_utils_fast", None)
    check = wrong()
    assert check.name == "import fairseq"
    assert "fairseq.data.token_block_utils_fast" in check.state
    assert "compiler" in check.fix


def test_an_extra_that_is_too_old_is_refused_where_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """pip keeps what is there, and an export with it would end in the middle."""
    pytest.importorskip("onnxscript")
    require_extra("onnx", "onnxscript")
    install(monkeypatch, onnxscript="0.3.2")
    with pytest.raises(UserError, match=r"onnxscript 0\.3\.2 .*pip install 'onnxscript>="):
        require_extra("onnx", "onnxscript")
    require_extra("onnx", "onnx")
