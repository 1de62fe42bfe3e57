"""What tests of several folders share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from forked_python import ForkedPython


@pytest.fixture(scope="session")
def forked_python() -> Iterator[ForkedPython]:
    """A Python that starts at once, and commands beside it."""
    server = ForkedPython()
    yield server
    server.stop()
