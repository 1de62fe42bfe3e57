"""Saving through fairseq's own functions: every file whole, retried where that helps, in words where it does not."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_compat import UserError, checkpoints


def test_passing_failure_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, failures = torch.save, iter([OSError(errno.EIO, "once"), OSError(errno.EIO, "twice")])

    def save(obj: Any, file: Any) -> None:
        if (failure := next(failures, None)) is not None:
            file.write(b"half of a checkpoint")
            raise failure
        real(obj, file)

    monkeypatch.setattr(torch, "save", save)
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(b"old")
    checkpoint_utils.torch_persistent_save({"weight": torch.ones(2)}, str(path))
    assert torch.equal(checkpoints.load(path)["weight"], torch.ones(2))
    assert caplog.text.count("trying again") == 2
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize(
    ("number", "raised", "tries"), [(errno.EIO, OSError, 3), (errno.ENOSPC, UserError, 1)], ids=["lasting", "full disk"]
)
def test_failure_that_stays_keeps_the_old_file(
    number: int, raised: type[Exception], tries: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def save(obj: Any, file: Any) -> None:
        tried.append(1)
        raise OSError(number, "always")

    monkeypatch.setattr(torch, "save", save)
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(b"old")
    with pytest.raises(raised):
        checkpoint_utils.torch_persistent_save({}, str(path))
    assert len(tried) == tries
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [path.name]


def test_copies_of_a_save_are_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "checkpoint1.pt", tmp_path / "checkpoint_last.pt"
    source.write_bytes(b"new")
    target.write_bytes(b"old")
    real = os.replace
    monkeypatch.setattr(os, "replace", lambda *paths: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
    with pytest.raises(UserError, match="checkpoint_last"):
        checkpoint_utils.PathManager.copy(str(source), str(target), overwrite=True)
    assert target.read_bytes() == b"old"
    monkeypatch.setattr(os, "replace", real)
    assert checkpoint_utils.PathManager.copy(str(source), str(target), overwrite=True)
    assert target.read_bytes() == b"new"


def test_everything_else_of_the_path_manager_is_fairseqs() -> None:
    from fairseq.file_io import PathManager

    assert checkpoint_utils.PathManager is not PathManager
    assert issubclass(checkpoint_utils.PathManager, PathManager)
    assert checkpoint_utils.PathManager.exists is PathManager.exists
