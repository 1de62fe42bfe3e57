"""Where tracebacks and graphs are kept, with and without a home."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fairseq_compat.user_cache import user_cache


@pytest.fixture(autouse=True)
def no_cache_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))


def test_with_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_cache() == str(tmp_path / ".cache")
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert user_cache() == "/elsewhere"


def test_without_a_home_that_can_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "~").mkdir()
    temporary = str(tmp_path / "temporary" / f"cache-{os.getuid()}")
    # Python leaves ~ as it is where the user has no account.
    monkeypatch.delenv("HOME")
    with monkeypatch.context() as context:
        context.setattr(os.path, "expanduser", lambda path: path)
        assert user_cache() == temporary
    monkeypatch.setenv("HOME", "/nonexistent")  # as of accounts of programs
    assert user_cache() == temporary
