"""What tests of several folders share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from forked_python import ForkedPython

# Before anything imports PyTorch: each of xdist's processes has a core to itself, and with two threads in each they
# wait for one another, which took four times as long. It also keeps the order of additions, on which bits depend.
os.environ["OMP_NUM_THREADS"] = "1"


@pytest.fixture(scope="session")
def forked_python() -> Iterator[ForkedPython]:
    """A Python that starts at once, and commands beside it."""
    server = ForkedPython()
    yield server
    server.stop()
