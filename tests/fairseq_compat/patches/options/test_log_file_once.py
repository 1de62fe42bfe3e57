"""``--log-file`` has each line of a training once, however many epochs it has."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from fairseq.logging import progress_bar as module


@pytest.fixture(autouse=True)
def log_of_its_own() -> Iterator[None]:
    module.logger.setLevel(logging.INFO)
    yield
    module.logger.setLevel(logging.NOTSET)
    for handler in module.logger.handlers[:]:
        module.logger.removeHandler(handler)
        handler.close()


def run_epochs(log_file: Path | None, epochs: int) -> None:
    for epoch in range(1, epochs + 1):
        path = None if log_file is None else str(log_file)
        bar = module.progress_bar([1, 2], log_format="simple", log_file=path, epoch=epoch)
        bar.print({"loss": epoch}, tag="train")


def test_each_line_once(tmp_path: Path) -> None:
    run_epochs(tmp_path / "log", 3)
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines == [f"epoch {epoch:03d} | loss {epoch}" for epoch in (1, 2, 3)]


def test_another_file_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_epochs(Path("one"), 2)
    run_epochs(tmp_path / "one", 1)  # the same file by another name
    run_epochs(tmp_path / "two", 1)
    assert len((tmp_path / "one").read_text().splitlines()) == 4  # lines go to all files that are open
    assert len((tmp_path / "two").read_text().splitlines()) == 1


def test_without_a_file() -> None:
    run_epochs(None, 2)
    assert module.logger.handlers == []
