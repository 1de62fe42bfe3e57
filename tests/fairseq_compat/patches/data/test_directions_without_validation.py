"""Directions without validation set are trained and not validated; where there is none at all, fairseq says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from fairseq import tasks
from many_languages import configured, directions, make_data


def _data(folder: Path, without: list[str]) -> Path:
    make_data(folder, 2)
    for language in without:
        for path in folder.glob(f"valid.en-{language}.*"):
            path.unlink()
    return folder


def test_other_directions_are_validated(tmp_path: Path) -> None:
    task = tasks.setup_task(configured(_data(tmp_path / "data", ["l01"]), 2).task)
    for split, pairs in (("train", directions(2)), ("valid", directions(1))):
        task.load_dataset(split)
        assert len(task.datasets[split].datasets) == len(pairs)


def test_no_validation_set_at_all(tmp_path: Path) -> None:
    task = tasks.setup_task(configured(_data(tmp_path / "data", ["l00", "l01"]), 2).task)
    with pytest.raises(KeyError, match="main:en-l00"):
        task.load_dataset("valid")
