"""Reading checkpoints: those of three ages of fairseq load, and what is none is refused."""

from __future__ import annotations

import argparse
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_checkpoints import model_and_options

from fairseq_compat import UserError, checkpoints

NEW_FORMAT, OLD_FORMAT = (pytest.param(new, id=name) for new, name in ((True, "zip"), (False, "before-1.6")))


def saved(path: Path, state: Any, new_format: bool = True, **options: Any) -> Path:
    torch.save(state, path, _use_new_zipfile_serialization=new_format, **options)
    return path


def state_of(style: str) -> dict[str, Any]:
    """A checkpoint of fairseq's Transformer: ``cfg`` as 0.12 wrote it, ``args`` as 0.10, ``oldest`` as 0.6."""
    model, options = model_and_options("transformer")
    written = {"args": argparse.Namespace(**options, task="translation", data="gone"), "model": model.state_dict()}
    if style == "oldest":
        moments: dict[str, Any] = {"state": {}, "param_groups": []}
        return {**written, "optimizer": moments, "best_loss": 3.5, "epoch": 2, "batch_offset": 7, "val_loss": 4.5}
    if style == "cfg":
        written |= {"args": None, "cfg": {"model": options, "task": {"_name": "translation"}}}
    return {
        **written, "optimizer_history": [{"lr_scheduler_state": {"best": None}, "num_updates": 5}],
        "extra_state": {"train_iterator": {"epoch": 2, "iterations_in_epoch": 3}, "val_loss": 4.5},
        "last_optimizer_state": {"state": {}, "param_groups": []},
    }  # fmt: skip


@pytest.mark.parametrize("new_format", [NEW_FORMAT, OLD_FORMAT])
@pytest.mark.parametrize("style", ["cfg", "args", "oldest"])
def test_fairseq_loads_its_checkpoints_of_all_ages(style: str, new_format: bool, tmp_path: Path) -> None:
    from fairseq import checkpoint_utils

    written = state_of(style)
    path = saved(tmp_path / "checkpoint.pt", written, new_format)
    state = checkpoint_utils.load_checkpoint_to_cpu(str(path))
    assert state["cfg"].model._name == "transformer"
    assert state["cfg"].model.encoder_layers == 2
    assert state["extra_state"]["train_iterator"]["epoch"] == 2
    assert list(state["model"]) == list(written["model"])
    for name, tensor in written["model"].items():
        # fairseq leaves a buffer of its positions uninitialized: by chance it is not a number.
        assert torch.allclose(state["model"][name], tensor, rtol=0, atol=0, equal_nan=True), name


# Files that are no checkpoint.


@pytest.mark.parametrize(
    "state",
    [
        {"state_dict": {}, "epoch": 3}, {}, {"model": {}}, {"model": {}, "args": None, "cfg": None}, [1, 2], None,
        {"args": argparse.Namespace(), "cfg": None}, torch.ones(3), OrderedDict(weight=torch.ones(1)),
        {"model": {"weight": "text"}, "cfg": {}}, {"model": torch.ones(1), "cfg": {}}, {"model": {}, "cfg": "text"},
    ],
    ids=str,
)  # fmt: skip
def test_foreign_content_is_refused(state: Any, tmp_path: Path) -> None:
    from fairseq import checkpoint_utils

    path = saved(tmp_path / "checkpoint.pt", state)
    for load in (checkpoints.load_checkpoint, checkpoint_utils.load_checkpoint_to_cpu):
        with pytest.raises(UserError, match=f"{path} is not a fairseq checkpoint"):
            load(str(path))


def test_options_and_updates() -> None:
    assert checkpoints.options_in({"cfg": {"model": argparse.Namespace(a=1)}, "args": None}) == {"a": 1}
    assert checkpoints.options_in({"cfg": {"model": {"a": 1}}}) == {"a": 1}
    assert checkpoints.options_in({"cfg": None, "args": argparse.Namespace(a=1)}) == {"a": 1}
    assert checkpoints.options_in({"args": argparse.Namespace(a=1)}) == {"a": 1}
    for untrained in ({}, {"optimizer_history": []}, {"optimizer_history": [{}]}):
        assert checkpoints.updates_in(untrained) == 0
    assert checkpoints.updates_in({"optimizer_history": [{"num_updates": 5}, {"num_updates": 9}]}) == 9
