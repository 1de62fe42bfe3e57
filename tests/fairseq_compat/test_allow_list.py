"""NumPy's arrays and numbers load, under the names of NumPy 1 and 2; what an array holds is checked like all else."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from fairseq_compat import UserError, allow_list, checkpoints


class Hostile:
    def __reduce__(self) -> tuple[object, ...]:
        return os.getcwd, ()


@pytest.mark.parametrize("letter", allow_list.NUMBERS)
def test_arrays_and_numbers(tmp_path: Path, letter: str) -> None:
    saved = {"array": np.arange(2).astype(letter), "number": np.ones(1, letter)[0]}
    torch.save(saved, tmp_path / "file.pt")
    loaded = checkpoints.load(tmp_path / "file.pt")
    assert loaded["array"].dtype == saved["array"].dtype
    assert loaded["array"].tolist() == saved["array"].tolist()
    assert loaded["number"] == saved["number"]


@pytest.mark.parametrize(("written", "read"), [("_core", "core"), ("core", "_core")])
def test_files_of_the_other_numpy(tmp_path: Path, written: str, read: str) -> None:
    """The older format keeps its pickle as it is, so that a name in it can be exchanged."""
    torch.save({"array": np.arange(3.0)}, tmp_path / "file.pt", _use_new_zipfile_serialization=False)
    content = (tmp_path / "file.pt").read_bytes()
    (tmp_path / "file.pt").write_bytes(content.replace(f"numpy.{written}.".encode(), f"numpy.{read}.".encode()))
    assert checkpoints.load(tmp_path / "file.pt")["array"].tolist() == [0, 1, 2]


def test_an_array_of_objects_hides_nothing(tmp_path: Path) -> None:
    torch.save({"array": np.array([Hostile()], dtype=object)}, tmp_path / "file.pt")
    with pytest.raises(UserError, match="getcwd"):
        checkpoints.load(tmp_path / "file.pt")
