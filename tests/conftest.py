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


@pytest.fixture(scope="session", autouse=True)
def temporary_files(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Puts what programs leave among temporary files, as processes that load data do, where pytest clears up."""
    os.environ["TMPDIR"] = tempfile.tempdir = str(tmp_path_factory.mktemp("tmp"))


@pytest.fixture(scope="session")
def forked_python() -> Iterator[ForkedPython]:
    """A Python that starts at once, and commands beside it."""
    server = ForkedPython()
    yield server
    server.stop()
