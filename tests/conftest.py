"""What tests of several folders share."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator

import pytest
from forked_python import ForkedPython

# Before anything imports PyTorch: each of xdist's processes has a core to itself, and with two threads in each they
# wait for one another, which took four times as long. It also keeps the order of additions, on which bits depend.
os.environ["OMP_NUM_THREADS"] = "1"

# A shell that starts the tests in the background has them ignore Ctrl-C, which whatever they start would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start what takes long first, and make what a module's tests share once, not in each of xdist's processes."""
    for item in items:
        if item.get_closest_marker("long") is not None:
            item.add_marker("slow")
        definitions = item._fixtureinfo.name2fixturedefs.values() if isinstance(item, pytest.Function) else ()
        scopes = {definition.scope for found in definitions for definition in found}
        if "module" in scopes and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.name))
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(scope="session", autouse=True)
def temporary_files(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Puts what programs leave among temporary files, as processes that load data do, where pytest clears up."""
    os.environ["TMPDIR"] = tempfile.tempdir = str(tmp_path_factory.mktemp("tmp"))
    # One for all of xdist's processes: what PyTorch's compiler finds out of this machine takes 20 seconds each time.
    folder = tmp_path_factory.getbasetemp()
    shared = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(shared / "inductor")
    os.environ["XDG_CACHE_HOME"] = str(shared / "cache")  # kept tracebacks, figures' fonts


@pytest.fixture(scope="session")
def forked_python() -> Iterator[ForkedPython]:
    """A Python that starts at once, and commands beside it."""
    server = ForkedPython()
    yield server
    server.stop()
