"""Each thing that can be wrong with an installation is reported, with its fix."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from fairseq_compat import diagnosis, versions
from fairseq_compat.diagnosis import Check
from fairseq_compat.patches import PATCHES


def wrong(checks: list[Check]) -> list[Check]:
    return [check for check in checks if not check.ok]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``installed(torch="1.0", fairseq=None)``: as if these versions were installed (None: nothing)."""
    real = versions.installed_version

    def change(**found: str | None) -> None:
        changed = {name.replace("_", "-"): version for name, version in found.items()}
        monkeypatch.setattr(
            versions, "installed_version", lambda name: changed[name] if name in changed else real(name)
        )

    return change


def test_nothing_is_wrong_here() -> None:
    checks = diagnosis.diagnose()
    assert wrong(checks) == []
    names = {check.name for check in checks}
    assert names >= {"Python", "start-up hook", "import fairseq", "patches"}
    assert {supported.distribution for supported in versions.SUPPORTED} <= names


@pytest.mark.parametrize(
    ("name", "found", "fix"),
    [
        ("torch", "1.13.1", "'torch>=2.4,<2.14'"), ("torch", "2.99", "'torch>=2.4,<2.14'"),
        ("torch", None, "'torch>=2.4,<2.14'"), ("fairseq", "0.12.1", "--no-deps fairseq==0.12.2"),
        ("fairseq", "1.0.0a0", "--no-deps fairseq==0.12.2"), ("fairseq", None, "--no-deps fairseq==0.12.2"),
    ],
)  # fmt: skip
def test_other_or_missing_distribution(name: str, found: str | None, fix: str, installed: Callable[..., None]) -> None:
    installed(**{name: found})
    (check,) = wrong(diagnosis.diagnose())
    assert (check.name, check.found) == (name, found or "not installed")
    assert check.fix == f"pip install {fix}"


def test_several_problems_are_all_listed(installed: Callable[..., None]) -> None:
    installed(omegaconf="2.0.6", hydra_core="1.0.7", fairseq=None)
    assert [check.name for check in wrong(diagnosis.diagnose())] == ["hydra-core", "omegaconf", "fairseq"]


@pytest.mark.parametrize("found", ["3.9.18", "3.14.0"])
def test_python_out_of_range(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "python_version", lambda: found)
    (check,) = wrong(diagnosis.diagnose())
    assert (check.name, check.found) == ("Python", found)
    assert "3.10" in check.fix


def test_inactive_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    real = subprocess.run
    # -S reads no start-up hooks: what a folder made by `pip install --target` amounts to.
    monkeypatch.setattr(subprocess, "run", lambda command, **rest: real([command[0], "-S", *command[1:]], **rest))
    (check,) = wrong(diagnosis.diagnose())
    assert (check.name, check.found) == ("start-up hook", "not active")
    assert "pip install --force-reinstall" in check.fix


def test_fairseq_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str, *rest: Any) -> Any:
        raise AttributeError("module 'numpy' has no attribute 'float'\nsecond line")

    monkeypatch.setattr(importlib, "import_module", fail)
    (check,) = wrong(diagnosis.diagnose())
    assert check.name == "import fairseq"
    assert check.found == "AttributeError: module 'numpy' has no attribute 'float'"
    assert check.fix == versions.INSTALL_FAIRSEQ


@pytest.mark.parametrize("missing", ["fairseq.data.data_utils_fast", "fairseq.data.token_block_utils_fast"])
def test_missing_compiled_part(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    importlib.import_module("fairseq.data")
    monkeypatch.setitem(sys.modules, missing, None)
    (check,) = wrong(diagnosis.diagnose())
    assert check.name == "compiled parts of fairseq"
    assert missing in check.found
    assert "compiler" in check.fix


def test_every_patch_is_described_in_one_line() -> None:
    described = diagnosis.patches()
    assert len(described) == len(PATCHES)
    for modules, why in described:
        assert modules
        assert len(why.splitlines()) == 1
