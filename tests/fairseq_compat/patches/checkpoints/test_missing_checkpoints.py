"""A training that was told where to go on from starts from nothing only where that is its own folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fairseq import checkpoint_utils
from fairseq.dataclass.configs import CheckpointConfig

from fairseq_compat import UserError


class AskedError(Exception):
    """fairseq has gone on to read a checkpoint."""


def load(folder: Path, *, suffix: str = "", master: bool = True, **options: Any) -> str:
    """The path that the trainer is asked to read."""

    def ask(path: str, *_: Any, **__: Any) -> None:
        raise AskedError(path)

    trainer = SimpleNamespace(checkpoint_suffix=suffix, is_data_parallel_master=master, load_checkpoint=ask)
    cfg = CheckpointConfig(save_dir=str(folder), **options)
    with pytest.raises(AskedError) as asked:
        checkpoint_utils.load_checkpoint(cfg, trainer)
    return str(asked.value)


OPTIONS = ("restore_file", "continue_once", "finetune_from_model")


@pytest.mark.parametrize("option", OPTIONS)
def test_a_missing_file_is_refused_and_one_that_is_there_is_read(option: str, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    with pytest.raises(UserError, match=f"^--{option.replace('_', '-')} {path} does not exist"):
        load(tmp_path / "run", **{option: str(path)})
    path.touch()
    assert load(tmp_path / "run", **{option: str(path)}) == str(path)


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("kind", ["folder", "device", "pipe", "link", "nothing"])
def test_what_is_no_file_is_refused(kind: str, option: str, tmp_path: Path) -> None:
    path = {"device": os.devnull, "nothing": ""}.get(kind, str(tmp_path / "model.pt"))
    make: dict[str, Callable[[str], Any]] = {"folder": os.mkdir, "pipe": os.mkfifo, "link": partial(os.symlink, "gone")}
    make.get(kind, str)(path)
    typed = f"--{option.replace('_', '-')} {path or repr(path)}"
    for folder in (tmp_path, tmp_path / "run"):
        with pytest.raises(UserError, match=f"^{typed} is "):
            load(folder, **{option: path})


@pytest.mark.parametrize("make", [os.mkdir, partial(os.symlink, "gone")])
def test_own_checkpoint_that_is_no_file(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "checkpoint_last.pt")
    with pytest.raises(UserError, match=r"/checkpoint_last.pt is a "):
        load(tmp_path)


def test_two_beginnings(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--finetune-from-model a.pt and --restore-file b.pt "):
        load(tmp_path, finetune_from_model="a.pt", restore_file="b.pt")


def test_a_run_of_its_own_needs_no_file(tmp_path: Path) -> None:
    path = str(tmp_path / "run" / "checkpoint_best.pt")
    assert load(tmp_path / "run", restore_file=path) == path
    last = tmp_path / "checkpoint_last.pt"
    assert load(tmp_path) == str(last)
    last.touch()
    assert load(tmp_path, continue_once="gone.pt") == str(last)


def test_each_shard_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "model-shard0.pt").touch()
    found = load(tmp_path / "run", restore_file=str(tmp_path / "model.pt"), suffix="-shard0")
    assert found == str(tmp_path / "model-shard0.pt")


def test_other_processes_do_not_look(tmp_path: Path) -> None:
    assert load(tmp_path, restore_file="elsewhere/model.pt", master=False) == "elsewhere/model.pt"
