"""Tests on every supported Python, with the lowest and with the newest versions that are supported: ``make matrix``.

Other tests, and fewer environments: ``nox -s "matrix-3.10(lowest)" -- tests/modules``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nox

sys.path.insert(0, str(Path(__file__).parent))
from fairseq_compat.versions import INSTALL_FAIRSEQ, PYTHON, SUPPORTED  # the folder is on the path by the line above

PINNED = ("torch", "numpy", "omegaconf")
TESTS = ("tests/system/test_installation.py", "tests/system/test_stock_commands.py", "tests/fairseq_compat")

first, below = (int(version.removeprefix("3.")) for version in (PYTHON.first, PYTHON.below))


def lowest(is_new: bool) -> list[str]:
    """Return requirements of the lowest supported versions that exist for Python 3.13, or for older ones."""
    versions = {supported.distribution: supported.first for supported in SUPPORTED}
    if is_new:
        versions |= {"numpy": "2.1"}
    return [f"{name}=={versions[name]}.*" for name in PINNED]


@nox.session(python=[f"3.{minor}" for minor in range(first, below)])
@nox.parametrize("versions", [nox.param(name, id=name) for name in ("lowest", "newest")])
def matrix(session: nox.Session, versions: str) -> None:
    """Install the project and its tests into a fresh environment, and run the named tests, or a choice."""
    is_new = "True" in str(session.run("python", "-c", "import sys; print(sys.version_info >= (3, 13))", silent=True))
    requirements = lowest(is_new) if versions == "lowest" else []
    session.install("-e", ".[test]", *requirements)
    session.install(*INSTALL_FAIRSEQ.split()[2:])
    session.run("fairseq-depthwise", "doctor")
    options = ("-n", "2", "--dist", "loadgroup", "-m", "not long")
    session.run("python", "-m", "pytest", *options, *(session.posargs or TESTS))
