"""What the tests of translation share: the words of a small model."""

from __future__ import annotations

import pytest
from probe_checkpoints import data_in


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A data folder with dictionaries alone."""
    return data_in(tmp_path_factory.mktemp("translation") / "data-bin")
