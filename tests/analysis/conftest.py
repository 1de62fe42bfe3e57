"""What the tests of analyses share: data for the tiny models."""

from __future__ import annotations

import pytest
from probe_checkpoints import data_in


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A data folder with parts train, valid and test, and one of which a sentence is long."""
    return data_in(tmp_path_factory.mktemp("analysis") / "data-bin", long=["w1 " * 40, "w1 w2", "w3"])
