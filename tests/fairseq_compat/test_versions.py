"""Version ranges, and the sentence about a missing or other fairseq."""

from __future__ import annotations

import pytest
from packaging.markers import Marker

from fairseq_compat import versions
from fairseq_compat.versions import Supported


@pytest.mark.parametrize(
    ("version", "admitted"),
    [
        ("2.4", True), ("2.4.0", True), ("2.4.1", True), ("2.13.0+cpu", True), ("2.13.0a0+git1234", True),
        ("2.3.9", False), ("2.14", False), ("2.14.0.dev2", False), ("10.0", False), ("1.99", False), ("odd", False),
    ],
)  # fmt: skip
def test_range_is_compared_by_number(version: str, admitted: bool) -> None:
    assert Supported("torch", "2.4", "2.14").admits(version) == admitted


def test_everything_supported_is_what_is_installed_here() -> None:
    assert Supported("torch", "2.4", "2.14").requirement == "torch>=2.4,<2.14"
    for supported in versions.SUPPORTED:
        found = versions.installed_version(supported.distribution)
        assert found is not None, supported.distribution
        assert supported.admits(found), (supported, found)
    assert versions.installed_version("no-such-distribution-anywhere") is None


def test_recorded_versions_leave_out_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    look_up = versions.installed_version
    monkeypatch.setattr(versions, "installed_version", lambda name: None if name == "fairseq" else look_up(name))
    recorded = versions.recorded_versions()
    assert list(recorded) == ["fairseq-depthwise", "torch", "numpy", "python"]
    assert recorded["torch"] == look_up("torch")
    assert recorded["python"] == versions.python_version()


@pytest.mark.parametrize(
    ("found", "start"), [(None, "fairseq is not"), ("0.10.2", "fairseq 0.10.2 "), ("0.12.2", None)]
)
def test_problem_with_fairseq(found: str | None, start: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    look_up = versions.installed_version
    monkeypatch.setattr(versions, "installed_version", lambda name: found if name == "fairseq" else look_up(name))
    problem = versions.fairseq_problem()
    if start is None:
        assert problem is None
    else:
        assert problem is not None
        assert problem.startswith(start)
        assert problem.endswith("pip install --no-deps fairseq==0.12.2")
    monkeypatch.setattr(versions, "installed_version", lambda name: None)
    # What fairseq needs is named before fairseq.
    assert (versions.fairseq_problem() or "").startswith("torch is not")


@pytest.mark.parametrize(
    ("python", "lowest"),
    [((3, 10, 13), "2.4"), ((3, 12, 9), "2.4"), ((3, 13, 0), "2.6"), ((3, 13, 1), "2.5"), ((3, 13, 9), "2.5")],
)
def test_pip_and_doctor_ask_for_the_same_pytorch(python: tuple[int, int, int], lowest: str) -> None:
    assert versions.lowest_torch(python) == lowest
    text = ".".join(str(part) for part in python)
    environment = {"python_version": text.rpartition(".")[0], "python_full_version": text}
    asked = [first for marker, first in versions.LOWEST_TORCH if Marker(marker).evaluate(environment)]
    assert asked[-1] == lowest
